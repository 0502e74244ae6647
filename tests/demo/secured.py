"""The demo where all of the mirror's own goes over mutual TLS and SCRAM, with the rights that docs/GUIDE.md lists.

Both clusters have an authorizer, which lets the demo's own clients, the producers and those who look at log ends, do
everything: they come to the listener without security. ``mirror run``, its group and the audit come to the other one.

    python -m tests.demo.secured 20MB
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mirror.demo.data.topics import parse_size
from mirror.demo.demo import BROKER_PROPERTIES, DESTINATION, PATTERNS, SOURCE, Demo, Options
from mirror.demo.show.screen import Screen, open_screen
from mirror.sandbox import SandboxCluster
from tests import secured
from tests.secured import SASL_TLS, USER
from tests.service.stage.rights import AUTHORIZER, Principals, listed
from tests.service.stage.running import config_text

FLOW_ID = "demo"
"""By which its rights are named: one without an arrow is the same in the name of each resource."""
PREFIXES = ("librdkafka-*", "java-*")
"""The demo's topics, as resources of ACLs."""


class SecuredDemo(Demo):
    """See the module's text. ``folder``: for certificates."""

    def __init__(self, options: Options, screen: Screen, folder: Path) -> None:
        super().__init__(options, screen)
        self._files = secured.made(folder)

    def _start(self) -> tuple[SandboxCluster, SandboxCluster]:
        more = BROKER_PROPERTIES | AUTHORIZER | secured.BOTH
        source, destination = (
            self._stack.enter_context(secured.cluster(self._files, name=name, more=more))
            for name in (SOURCE, DESTINATION)
        )
        principals = Principals({SOURCE: source, DESTINATION: destination})
        rights = {right.of(topic=topic, flow=FLOW_ID) for right in listed() for topic in PREFIXES}
        principals.grant(USER, sorted(rights, key=str))
        return source, destination

    def _configure(self, path: Path, source: SandboxCluster, destination: SandboxCluster) -> None:
        secure = secured.keys(self._files)
        text = config_text(
            source.servers(SASL_TLS), destination.servers(SASL_TLS), PATTERNS,
            flow={"flow.id": FLOW_ID}, clusters={SOURCE: secure, DESTINATION: secure},
            top={"progress.interval.ms": 500},
        )  # fmt: skip
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Plays it. Exit code 0: identical."""
    with tempfile.TemporaryDirectory() as folder, closing(open_screen()) as screen:
        identical = SecuredDemo(Options(size=parse_size(sys.argv[1])), screen, Path(folder)).run()
    sys.exit(0 if identical else 2)


if __name__ == "__main__":
    main()
