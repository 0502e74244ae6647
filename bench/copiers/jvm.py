"""What both MirrorMakers share: the JVM, and the tuning of their consumers and producers.

Fetches and batches are large, since that is cheapest. The codec is that of the data, so that the destination stores
what the source does. For latency, fetches do not wait for bytes, and producers linger only for 5 ms.
"""

from collections.abc import Mapping
from pathlib import Path

from mirror.sandbox.kafka import java

__all__ = ["OPTIONS", "command", "consumer", "producer", "render", "tls"]

OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData", "-Djava.awt.headless=true",
           "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")  # fmt: skip


def command(classpath: str, main: str, *arguments: str) -> list[str]:
    """Returns the command that runs a Java class. ``main``: name of the class; ``arguments``: its arguments."""
    return [java.find(), *OPTIONS, "-cp", classpath, main, *arguments]


def consumer(*, prompt: bool, far: bool = False) -> dict[str, str]:
    """Returns the settings of the consumer at the source.

    Args:
        prompt: True if latency counts, False if throughput counts.
        far: True if there is a long link to the source.
    """
    return {
        "fetch.max.bytes": "52428800",
        # Over a long link, as much as arrives within a round trip. Nearby, that much would only cost memory.
        "max.partition.fetch.bytes": "33554432" if far else "4194304",
        "fetch.min.bytes": "1" if prompt else "1048576",
        "fetch.max.wait.ms": "500",
        "max.poll.records": "5000",
        "receive.buffer.bytes": "1048576",
        "check.crcs": "true",
    }


def producer(codec: str, *, prompt: bool) -> dict[str, str]:
    """Returns the settings of the producer at the destination. ``prompt``: True if latency counts, False if throughput
    counts."""
    return {
        "compression.type": codec,
        "acks": "all",
        "enable.idempotence": "true",
        "batch.size": "262144",
        "linger.ms": "5" if prompt else "100",
        "buffer.memory": "134217728",
        "max.request.size": "8388608",
        "send.buffer.bytes": "1048576",
    }


def tls(ca: Path | None) -> dict[str, str]:
    """Returns the settings of a client that connects with TLS. ``ca``: PEM file with the CA to trust."""
    return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}


def render(properties: Mapping[str, str]) -> str:
    """Returns the text of a Java properties file."""
    escaped = (f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items())
    return "".join(escaped)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\")
