"""The tests, laid out as the package is.

Warnings are errors here. kafka-python reads its schemas with functions that Python 3.11 deprecates, once, when it is
imported: so it is imported here first, with those left alone.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="(open|read)_text is deprecated", category=DeprecationWarning)
    import kafka  # noqa: F401
