"""A network that fails on demand: a TCP proxy that knows Kafka's requests, between the mirror and a cluster's brokers.

with Proxy(brokers=3) as proxy, Cluster(brokers=3, proxied=proxy.ports) as cluster:
    proxy.attach(cluster)
    lost = proxy.arm("Produce", cut_answer())      # the broker does it, but its answer never arrives
    ...                                            # a mirror that uses proxy.bootstrap_servers
    lost.wait()
"""

from lab.proxy.faults import (
    Fault,
    Refuse,
    Spoil,
    cut_answer,
    cut_request,
    hold_answer,
    hold_request,
    watch_answer,
    watch_request,
)
from lab.proxy.frames import Direction, Frame
from lab.proxy.proxy import BOTH, MIRROR_HOST, Proxy

__all__ = [
    "BOTH",
    "MIRROR_HOST",
    "Direction",
    "Fault",
    "Frame",
    "Proxy",
    "Refuse",
    "Spoil",
    "cut_answer",
    "cut_request",
    "hold_answer",
    "hold_request",
    "watch_answer",
    "watch_request",
]
