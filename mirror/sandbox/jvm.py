"""The command line of a Kafka JVM."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mirror.sandbox import logs
from mirror.sandbox.kafka import java

__all__ = ["Jvm"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """The options with which JVMs are run.

    Attributes:
        heap_mb: largest size of a broker's heap, in MiB.
        quick: compile lightly: starts sooner, serves slower. For tests; never for measurements.
        options: further options of the brokers' ``java``.
        shared: further options of every ``java``, helpers included.
    """

    heap_mb: int = 1024
    quick: bool = False
    options: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    def command(
        self, classpath: str, main: str, arguments: list[str], *, folder: Path, small: bool = False
    ) -> list[str]:
        """Returns the command that runs a class.

        Args:
            classpath: jars, joined as ``java -cp`` takes them.
            main: the class.
            arguments: its arguments.
            folder: an existing folder, in which the JVM may leave files.
            small: a helper that lives briefly or does little: a small heap, compiled lightly.
        """
        light = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        shape = (
            ["-Xmx256m", *light] if small else [f"-Xmx{self.heap_mb}m", *(light if self.quick else ["-XX:+UseG1GC"])]
        )
        return [
            # Codecs unpack their native libraries there, and remove them only at a clean exit.
            java.find(), *shape, *self.shared, f"-Djava.io.tmpdir={folder}", f"-Dkafka.logs.dir={folder}",
            "-XX:-UsePerfData", "-Djava.awt.headless=true", *logs.backend_options(classpath, folder),
            *(() if small else self.options), "-cp", classpath, main, *arguments,
        ]  # fmt: skip
