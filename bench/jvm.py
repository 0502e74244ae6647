"""What both MirrorMakers share: the JVM, its warm-up, and how their consumers and producers are tuned.

Fetches and batches are large, since that is what makes them cheapest; the codec is that of the data, so that the
destination holds what the source does. For latency the same without lingering.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.measure import Window
from mirror.sandbox import java

__all__ = ["OPTIONS", "WINDOW", "command", "consumer", "producer", "render", "tls"]

OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData", "-Djava.awt.headless=true",
           "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")  # fmt: skip
WINDOW = Window(warm_s=20.0, latest_fraction=0.5, longest_s=20.0)
"""Where all is copied sooner, the second half."""


def command(classpath: str, main: str, *arguments: str) -> list[str]:
    """The command that runs a class."""
    return [java.find(), *OPTIONS, "-cp", classpath, main, *arguments]


def consumer(*, prompt: bool) -> dict[str, str]:
    """Settings of the consumer at the source."""
    return {
        "fetch.max.bytes": "52428800",
        "max.partition.fetch.bytes": "4194304",
        "fetch.min.bytes": "1" if prompt else "1048576",
        "fetch.max.wait.ms": "500",
        "max.poll.records": "5000",
        "receive.buffer.bytes": "1048576",
        "check.crcs": "true",
    }


def producer(codec: str, *, prompt: bool) -> dict[str, str]:
    """Settings of the producer at the destination."""
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
    """Settings of any client of a cluster that speaks TLS; ``ca``: whom to trust, as a PEM file."""
    return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}


def render(properties: Mapping[str, str]) -> str:
    """As a Java properties file."""
    escaped = (f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items())
    return "".join(escaped)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\")
