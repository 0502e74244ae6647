"""What a new configuration changes of what runs."""

from pathlib import Path
from typing import Any

from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.flows.changes import Changes, changes
from mirror.service.worker_settings import Supervision
from tests.service.config.test_across import text

ONE: dict[str, dict[str, Any]] = {"west->east": {}, "west->hub": {}}


def told(folder: Path, flows: dict[str, dict[str, Any]], option: int | None = None, **top: object) -> Supervision:
    path = folder / "mirror.yaml"
    path.write_text(text(flows, **top))
    return supervision(load(path), workers=option)


def names(found: Changes) -> tuple[tuple[str, ...], ...]:
    return found.added, found.removed, found.restarted, found.untouched


def test_nothing(tmp_path: Path) -> None:
    """The same file, also after the settings went to another program: nothing."""
    old = told(tmp_path, ONE)
    found = changes(Supervision.unpack(old.pack()), told(tmp_path, ONE))
    assert names(found) == ((), (), (), ("west->east", "west->hub"))
    assert found.need_restart == ()
    assert found.told.pack() == old.pack()


def test_the_file_of_the_audit_restarts_nothing(tmp_path: Path) -> None:
    old = told(tmp_path, ONE)
    found = changes(old, told(tmp_path, {"west->east": {"audit.metrics.file": "a.prom"}, "west->hub": {}}))
    assert names(found) == ((), (), (), ("west->east", "west->hub"))
    assert (found.need_restart, found.told.audit_files) == ((), {"west->east": str(tmp_path / "a.prom")})
    assert Supervision.unpack(found.told.pack()).audit_files == found.told.audit_files


def test_flows(tmp_path: Path) -> None:
    """One comes, one goes, one changes, one stays."""
    old = told(tmp_path, {**ONE, "east->hub": {"topics": ["b"]}})
    new = told(
        tmp_path, {"west->hub": {"settle.ms": 2_000}, "east->hub": {"topics": ["b"]}, "hub->west": {"topics": ["c"]}}
    )
    found = changes(old, new)
    assert names(found) == (("hub->west",), ("west->east",), ("west->hub",), ("east->hub",))
    assert [flow.flow for flow in found.told.flows] == ["west->hub", "east->hub", "hub->west"]


def test_limits(tmp_path: Path) -> None:
    """A flow of which only these change is not restarted; with anything else, it is."""
    limits: dict[str, Any] = {"max.bytes.per.second": "2MiB", "topic.max.bytes.per.second": {"a": "1MiB"}}
    old = told(tmp_path, {"west->east": {}, "west->hub": limits})
    found = changes(old, told(tmp_path, {"west->east": limits, "west->hub": limits | {"settle.ms": 2_000}}))
    assert names(found) == ((), (), ("west->hub",), ())
    assert found.limited == ("west->east",)
    assert found.told.flows[0].relay.max_bytes_per_second == 2 << 20
    assert changes(found.told, found.told).limited == ()
    gone = changes(found.told, told(tmp_path, {"west->east": {}, "west->hub": {"settle.ms": 2_000}}))
    assert gone.limited == ("west->east", "west->hub")


def test_a_cluster(tmp_path: Path) -> None:
    """Another address of a cluster restarts the flows that it is in."""
    old = told(tmp_path, {"west->east": {}, "west->hub": {}})
    path = tmp_path / "mirror.yaml"
    path.write_text(path.read_text().replace("e:1", "e:2"))
    assert names(changes(old, supervision(load(path)))) == ((), (), ("west->east",), ("west->hub",))


def test_what_needs_a_restart(tmp_path: Path) -> None:
    """The service's own settings stay as they were, whatever else changes; no flow is restarted for them."""
    old = told(tmp_path, ONE)
    more: dict[str, Any] = {
        "log_level": "debug",
        "http_listen": "127.0.0.1:1",
        "workers": 3,
        "progress_interval_ms": 200,
    }
    found = changes(old, told(tmp_path, ONE, drain_timeout_ms=15_000, **more))
    assert found.need_restart == ("http.listen", "log.level", "progress.interval.ms", "workers")
    assert found.untouched == ("west->east", "west->hub")
    assert found.told.pack() == old.pack()
    # What was given on the command line holds: the key is not in use.
    assert changes(told(tmp_path, ONE, option=2), told(tmp_path, ONE, option=2)).need_restart == ()


def test_what_the_service_takes_at_once(tmp_path: Path) -> None:
    """What metrics are told of; no flow has to do with it."""
    old = told(tmp_path, ONE)
    found = changes(old, told(tmp_path, ONE, metrics_granularity="topic"))
    assert (old.metrics_granularity, found.told.metrics_granularity) == ("partition", "topic")
    assert (found.need_restart, found.untouched) == ((), ("west->east", "west->hub"))


def test_what_every_flow_uses(tmp_path: Path) -> None:
    old = told(tmp_path, ONE)
    found = changes(old, told(tmp_path, ONE, drain_timeout_ms=1_000))
    assert found.restarted == ("west->east", "west->hub")
    assert found.told.drain_timeout_ms == 1_000
