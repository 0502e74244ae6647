"""Real Apache Kafka clusters on this machine's loopback, for the demo, the tests and the benchmarks.

    with Cluster(name="source", version="4.3.0", brokers=3) as cluster:
        print(cluster.bootstrap_servers)
        cluster.brokers[0].kill()
        cluster.brokers[0].start()

Stands alone: imports nothing else of the project. Needs Linux, Java 17 and, to fetch Kafka's jars once, pyspark.
"""

from mirror.sandbox.broker import Broker
from mirror.sandbox.cluster import SandboxCluster, start_together
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka import jars

__all__ = ["Broker", "SandboxCluster", "SandboxError", "jars", "start_together"]
