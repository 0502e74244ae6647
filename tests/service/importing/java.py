"""Java's own classes, called from Python: a JVM beside the tests, by the py4j that comes with pyspark."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from mirror.sandbox.kafka import java

TIMEOUT_S = 60.0


@contextmanager
def running(classpath: str = "") -> Iterator[Any]:
    """Yields the classes that a JVM has: ``classes.java.util.Properties()``. It ends with the block."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port, process = launch_gateway(
        jarpath=str(jar), classpath=classpath, die_on_exit=True, java_path=java.find(), return_proc=True,
        redirect_stdout=subprocess.DEVNULL, redirect_stderr=subprocess.DEVNULL,
    )  # fmt: skip
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        with suppress(Exception):  # it may be gone
            gateway.shutdown()
        process.kill()
        process.wait(TIMEOUT_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
