"""For brokers that no test kills."""

from collections.abc import Mapping

__all__ = ["PATIENT"]

PATIENT: Mapping[str, str] = {"broker.session.timeout.ms": "20000", "zookeeper.session.timeout.ms": "20000"}
"""Broker properties: on a busy machine a broker may stand still for seconds, and where it is alone and its session ends
by that, no partition has a leader for a moment, leader epochs move on, and clients find no controller. Not for a broker
that is killed: it comes back only when its session is over, hence the sandbox's 5 s.
"""
