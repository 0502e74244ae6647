"""What pyproject.toml cannot say yet without a warning: the compiled form of the inner loop.

Optional: where there is no C compiler, or no header files of Python, the installation goes on without it.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("mirror.relay._plain", sources=["mirror/relay/_plain.c"], optional=True, py_limited_api=True),
    ],
)
