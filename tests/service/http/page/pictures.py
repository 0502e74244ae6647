"""Writes the pictures of the status page that the documents show: ``python -m tests.service.http.page.pictures``."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from mirror.sandbox import SandboxCluster
from tests.service.http.page.looking import looked_at, some_of_everything
from tests.service.stage.running import address, fetch

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "pictures"
PICTURES = {
    "page": ("--window-size=1100,1000",),
    "page-phone-dark": ("--window-size=420,1000", "--blink-settings=preferredColorScheme=0"),
}
POLLS_MS = 100_000
"""Twenty times that the page asks again."""
EACH_S = 1.0
"""The browser's time stands still while it waits for an answer, so each answer comes so much later: then there is
something to see."""


@contextmanager
def slowly(where: str) -> Iterator[str]:
    """Serves the page of the mirror that listens there. Yields the address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(EACH_S)
            code, text = fetch(where, self.path)
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


def main() -> None:
    """Makes a mirror of two clusters that has some of everything, and takes the pictures of its page."""
    FOLDER.mkdir(exist_ok=True)
    with (
        TemporaryDirectory() as made,
        SandboxCluster(name="source", quick=True) as source,
        SandboxCluster(name="destination", quick=True) as destination,
        some_of_everything(source, destination, "orders", Path(made)) as process,
        slowly(address(process)) as url,
    ):
        for name, options in PICTURES.items():
            looked_at(url, Path(made) / name, f"--screenshot={FOLDER / name}.png", *options, polls_ms=POLLS_MS)


if __name__ == "__main__":
    main()
