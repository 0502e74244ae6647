"""What pyproject.toml cannot say yet without a warning: the compiled form of what is on the path of every batch.

Optional: where there is no C compiler, or no header files of Python, the installation goes on without it.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "mirror.relay._native",
            sources=[
                "mirror/relay/_native.c",
                "mirror/relay/_outbox.c",
                "mirror/relay/_plain.c",
                "mirror/relay/_gather.c",
                "mirror/relay/_acks.c",
            ],
            depends=["mirror/relay/_native.h"],
            optional=True,
            py_limited_api=True,
        ),
    ],
)
