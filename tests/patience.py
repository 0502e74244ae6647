"""Properties of the tests' brokers."""

from collections.abc import Mapping

__all__ = ["KEEPING", "PATIENT"]

KEEPING: Mapping[str, str] = {"log.retention.ms": "-1"}
"""Records are kept, whatever their age: brokers look for what has outlived its seven days 30 s after their start, and
every five minutes from then on. A test whose records are of long ago would lose them if it came to that moment.
"""
PATIENT: Mapping[str, str] = {
    **KEEPING,
    "broker.session.timeout.ms": "20000",
    "broker.heartbeat.interval.ms": "2000",
    "zookeeper.session.timeout.ms": "20000",
}
"""And for brokers that no test kills: on a busy machine a broker may stand still for seconds, and where it is alone and
its session ends by that, no partition has a leader for a moment, leader epochs move on, and clients find no controller.
Not for a broker that is killed: it comes back only when its session is over, hence the sandbox's 5 s.
"""
