"""Files on a volume that hangs, or that end in an error: nobody waits long, and the others are looked at."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from mirror.net.security import tls
from mirror.net.security.certificates import Certificate
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.service.telemetry.usage import files
from mirror.service.telemetry.usage.files import Beside
from tests.fakes.loop import until
from tests.service.telemetry.stage.fleets import fleet
from tests.service.telemetry.stage.showing import exposed_of


class Volume:
    """Some of its files hang, one is odd."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: list[str] = []

    def look(self, key: str, before: str | None) -> str:
        self.asked.append(key)
        if key.startswith("hangs"):
            self.over.wait(60)
        if key == "odd":
            raise ValueError("odd")
        return f"{before or ''}{key}"


@pytest.fixture
def volume() -> Iterator[Volume]:
    made = Volume()
    yield made
    made.over.set()
    for each in threading.enumerate():
        if each.name == "looks":
            each.join(30)


def beside(volume: Volume) -> Beside[str, str]:
    return Beside(volume.look, lambda key, error: f"{key} failed: {error}", name="looks")


async def test_each_file_by_itself(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. All are looked at, at once. One that hangs is waited for until the deadline; an error is an answer.
    2. The next look waits for those alone that do not hang already, and hands in what was known.
    3. It does not hang any more: that is known at the next look. What is not looked at is forgotten.
    """
    monkeypatch.setattr(files, "DEADLINE_S", 0.2)
    looks = beside(volume)
    await asyncio.wait_for(looks.look(["a", "hangs", "odd"]), 20)
    assert looks.known == {"a": "a", "odd": "odd failed: odd"}
    assert [looks.hangs(key) for key in ("a", "hangs", "odd")] == [False, True, False]
    monkeypatch.setattr(files, "DEADLINE_S", 60.0)
    await asyncio.wait_for(looks.look(["a", "hangs"]), 10)
    assert looks.known == {"a": "aa"}
    assert volume.asked.count("hangs") == 1
    volume.over.set()
    await until(lambda: not looks.running)
    await looks.look(["hangs"])
    assert looks.known == {"hangs": "hangshangs"}


def test_the_end_waits_for_nobody(volume: Volume) -> None:
    """Neither the loop's nor the program's."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(beside(volume).look(["hangs"]), 0.1))
    assert time.monotonic() - began < 30
    assert [each.daemon for each in threading.enumerate() if each.name == "looks"] == [True]


def test_certificates_on_a_volume_that_hangs(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape gets what was known of them, and that no connection can be made with the files as they are."""
    security = SecurityOptions(tls=TlsOptions(ca_file="ca.pem"))

    def of(options: TlsOptions) -> list[Certificate]:
        return [Certificate("CN=x", 5.0)] if volume.look(key, None) else []

    monkeypatch.setattr(files, "certificates_of", of)
    monkeypatch.setattr(tls, "are_usable", lambda _: True)
    monkeypatch.setattr(files, "DEADLINE_S", 0.2)
    key = "hangs"
    told = exposed_of(fleet(), "1", west=security).decode()
    assert "mirror_tls_certificate_expiry_timestamp_seconds{" not in told
    assert 'mirror_tls_files_usable{cluster="west"} 0.0' in told
    volume.over.set()
    while files.tls_files.running:
        time.sleep(0.01)
    expiry = 'mirror_tls_certificate_expiry_timestamp_seconds{cluster="west",subject="CN=x"} 5.0'
    told = exposed_of(fleet(), "1", west=security).decode()
    assert expiry in told
    assert 'mirror_tls_files_usable{cluster="west"} 1.0' in told
    volume.over.clear()
    told = exposed_of(fleet(), "1", west=security).decode()
    assert expiry in told
    assert 'mirror_tls_files_usable{cluster="west"} 0.0' in told
