"""Real Apache Kafka clusters on this machine's loopback, for the demo, the tests and the benchmarks.

    with Cluster(name="source", version="4.3.0", brokers=3) as cluster:
        print(cluster.bootstrap_servers)
        cluster.brokers[0].kill()
        cluster.brokers[0].start()

Stands alone: imports nothing else of the project. Needs Linux, Java 17 and, to fetch Kafka's jars once, pyspark.
"""

from . import jars
from .broker import Broker
from .cluster import Cluster, start_together
from .errors import SandboxError

__all__ = ["Broker", "Cluster", "SandboxError", "jars", "start_together"]
