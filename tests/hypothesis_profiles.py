"""How hard hypothesis looks, chosen by ``HYPOTHESIS_PROFILE``.

``ci`` (the default) is modest and the same on every run, so that a red build is red again; ``deep`` (``make deep``)
searches anew each time, for every night, and after a change to ``mirror/records`` or ``mirror/wire``. What it finds is
kept in ``.hypothesis`` and tried first the next time; whoever mends it adds it to the test as an ``@example``. No
profile has a deadline, or minds that drawing is slow: no test may depend on how fast the machine is.

``deep`` also has the simulation play all of its seeds (``tests/simulation/seeds.py``).
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    max_examples=1_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
