"""What pyproject.toml cannot say yet without a warning: the compiled form of what is on the path of every batch.

Optional: where there is no C compiler, or no header files of Python, the installation goes on without it.
"""

from typing import Any

import setuptools
from setuptools import Distribution, Extension, setup

READS_PYPROJECT = 77
"""The first major version of setuptools that understands pyproject.toml as it is here."""


class InPlace(Distribution):
    """For ``setup.py build_ext --inplace`` with an older one, such as Debian's: the extension needs nothing of that
    file. Installing always gets a newer one (build-system.requires)."""

    def parse_config_files(self, *_: Any, **__: Any) -> None:
        """Reads none."""
        super().parse_config_files(filenames=[])


setup(
    distclass=Distribution if int(setuptools.__version__.partition(".")[0]) >= READS_PYPROJECT else InPlace,
    ext_modules=[
        Extension(
            "mirror.relay.hot._native",
            sources=[
                "mirror/relay/hot/c/_native.c",
                "mirror/relay/hot/c/_outbox.c",
                "mirror/relay/hot/c/_plain.c",
                "mirror/relay/hot/c/_gather.c",
                "mirror/relay/hot/c/_acks.c",
            ],
            depends=["mirror/relay/hot/c/_native.h"],
            # Only PyInit__native is for others: what the files share is nobody else's.
            extra_compile_args=["-fvisibility=hidden"],
            optional=True,
            py_limited_api=True,
        ),
    ],
    # One wheel for every Python from 3.11 on: the extension uses the stable ABI alone (mirror/relay/hot/c/_native.h).
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
