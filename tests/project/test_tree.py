"""Tests stand where the code stands: each module has its test file, or a line here says which one covers it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COVERED = {
    # Plain data, errors and constants: nothing to test but their use.
    "service/flows/attempt.py": "service/flows/test_run.py",
    "service/flows/collector.py": "service/flows/test_run.py",
    "service/flows/obeying.py": "service/test_worker.py",
    "service/flows/telling.py": "service/test_worker.py",
    "audit/prepare/starting.py": "service/runs/starting/test_starting.py",
    "audit/errors.py": "audit/test_command.py",
    "audit/explain/telling.py": "audit/explain/test_comparing.py",
    "audit/certify/keys.py": "audit/certify/test_certificate.py",
    "audit/certify/verifying.py": "audit/certify/test_certificate.py",
    "audit/model/differences.py": "audit/judge/rounds/test_regions.py",
    "audit/model/findings.py": "audit/judge/test_kinds.py",
    "audit/model/places.py": "audit/prepare/test_compared.py",
    "audit/model/request.py": "audit/test_remedies.py",
    "audit/model/result.py": "audit/test_report.py",
    "audit/model/rows.py": "audit/judge/test_kinds.py",
    "audit/judge/rounds/looks.py": "audit/judge/rounds/test_differences.py",
    "offsetmap/compare/paths.py": "offsetmap/compare/test_alignment.py",
    "relay/locate/holding.py": "relay/locate/copies/test_pieces.py",
    "audit/spark/options.py": "audit/spark/test_source.py",
    "cli/auditing.py": "test_cli.py",
    "cli/configuration.py": "test_cli.py",
    "cli/entry.py": "test_cli.py",
    "cli/groups.py": "service/sync/test_process.py",
    "cli/moving/options.py": "cli/moving/test_offsets.py",
    "cli/partitions.py": "service/resume/test_pausing.py",
    "cli/planning.py": "service/plan/test_command.py",
    "cli/running.py": "test_cli.py",
    "demo/errors.py": "demo/test_cli.py",
    "net/admin/acls.py": "service/sync/test_acls.py",
    "net/admin/share.py": "service/sync/test_share.py",
    "net/errors.py": "net/test_connect.py",
    "net/security/files.py": "net/security/test_tls.py",
    "net/security/librdkafka.py": "net/security/test_tokens.py",
    "net/security/options.py": "service/config/test_security.py",
    "net/security/sasl.py": "net/security/test_brokers.py",
    "net/options.py": "net/test_connect.py",
    "offsetmap/entries/checkpoint.py": "offsetmap/entries/test_entry.py",
    "offsetmap/entries/keys.py": "offsetmap/entries/test_hostile.py",
    "offsetmap/entries/pins.py": "offsetmap/entries/test_entry.py",
    "offsetmap/internal/memory.py": "offsetmap/internal/test_topic.py",
    "relay/events.py": "relay/test_relay.py",
    "relay/hot/putting.py": "relay/hot/test_deep.py",
    "relay/orchestrator.py": "relay/test_relay.py",
    "relay/partition/claim.py": "relay/partition/test_partition.py",
    "relay/partition/cursor.py": "relay/partition/test_partition.py",
    "relay/partition/location.py": "relay/partition/test_partition.py",
    "relay/partition/phases.py": "relay/partition/test_partition.py",
    "relay/partition/queue.py": "relay/partition/test_partition.py",
    "relay/resuming.py": "relay/test_assignment.py",
    "relay/settings.py": "service/config/test_load.py",
    "relay/life/brokers.py": "relay/test_relay.py",
    "relay/topics/creating.py": "relay/topics/test_pairing.py",
    "relay/topics/describing.py": "relay/topics/test_pairing.py",
    "relay/topics/refresh.py": "relay/test_relay.py",
    "relay/stats.py": "service/telemetry/test_exposition.py",
    "sandbox/errors.py": "sandbox/standing/test_cli.py",
    "sandbox/settings.py": "sandbox/test_arguments.py",
    "sandbox/standing/state.py": "sandbox/standing/test_cli.py",
    "sandbox/kafka/versions.py": "sandbox/test_arguments.py",
    "service/program.py": "service/test_memory_of_processes.py",
    "service/exits.py": "cli/test_help.py",
    "service/instance/announcing.py": "service/instance/test_place.py",
    "service/instance/asking.py": "cli/lifecycle/test_verbs.py",
    "service/instance/background.py": "cli/lifecycle/test_verbs.py",
    "service/cutover/world.py": "service/cutover/real/test_moving.py",
    "service/config/errors.py": "service/config/test_document.py",
    "service/importing/accounting.py": "service/importing/read/test_dedicated.py",
    "service/importing/model.py": "service/importing/test_command.py",
    "service/importing/settings/clients.py": "service/importing/settings/test_lookup.py",
    "service/importing/settings/defaults.py": "service/importing/settings/test_lookup.py",
    "service/importing/settings/flows.py": "service/importing/settings/test_lookup.py",
    "service/importing/settings/protection.py": "service/importing/settings/test_lookup.py",
    "service/importing/settings/rule.py": "service/importing/settings/test_lookup.py",
    "service/importing/settings/strimzi.py": "service/importing/read/test_strimzi.py",
    "service/importing/settings/workers.py": "service/importing/settings/test_lookup.py",
    "service/telemetry/rows.py": "service/telemetry/test_fleet.py",
    "raw/errors.py": "raw/test_batches.py",
    "raw/model.py": "raw/test_consumer.py",
    # A part of what the named file tests as a whole.
    "spark/write/errors.py": "spark/write/test_task.py",
    "raw/leaders.py": "raw/consume/test_fetching.py",
    "raw/consume/cursor.py": "raw/consume/test_fetching.py",
    "raw/consume/link.py": "raw/consume/test_fetching.py",
    "audit/export.py": "audit/test_report.py",
    "audit/folder.py": "audit/test_report.py",
    "audit/judge/rounds/runs.py": "audit/judge/rounds/test_differences.py",
    "audit/judge/rounds/searching.py": "audit/judge/rounds/test_differences.py",
    "audit/judge/spans.py": "audit/judge/test_kinds.py",
    "audit/prepare/estimate.py": "audit/prepare/test_bounds.py",
    "audit/prepare/leading.py": "audit/prepare/test_bounds.py",
    "audit/prepare/offsets.py": "audit/prepare/test_bounds.py",
    "audit/prepare/policies.py": "audit/prepare/test_bounds.py",
    "audit/read/fetching.py": "audit/independent/test_consumer.py",
    "audit/read/leaders.py": "audit/read/test_reader.py",
    "audit/read/selecting.py": "audit/judge/test_mapped.py",
    "audit/read/tasks.py": "audit/spark/test_source.py",
    "audit/read/witness.py": "audit/read/test_holes.py",
    "audit/spark/cluster_session.py": "audit/spark/test_spark_cluster.py",
    "audit/spark/compare.py": "audit/spark/test_source.py",
    "audit/spark/daemon.py": "audit/spark/test_session.py",
    "audit/spark/java.py": "audit/test_command.py",
    "audit/spark/jvm.py": "audit/spark/test_session.py",
    "audit/spark/progress.py": "audit/spark/test_looking.py",
    "demo/watch/children.py": "demo/watch/test_daemon.py",
    "demo/show/dashboard.py": "demo/show/test_views.py",
    "demo/watch/ends.py": "demo/test_demo.py",
    "demo/watch/proof.py": "demo/watch/test_daemon.py",
    "demo/show/screen.py": "demo/show/test_views.py",
    "demo/show/units.py": "demo/show/test_views.py",
    "demo/data/writers.py": "demo/data/test_load.py",
    "net/health/unreached.py": "net/test_cluster.py",
    "offsetmap/compare/looks.py": "offsetmap/compare/test_alignment_cleaned.py",
    "offsetmap/compare/survivors.py": "offsetmap/compare/test_alignment_cleaned.py",
    "offsetmap/internal/batches.py": "offsetmap/internal/test_topic_cleaned.py",
    "offsetmap/internal/maps.py": "offsetmap/internal/test_topic_cleaned.py",
    "records/intact.py": "relay/hot/test_forward.py",
    "records/transactions.py": "relay/hot/test_forward.py",
    "relay/fetch/link.py": "relay/fetch/test_answers.py",
    "relay/halts.py": "relay/locate/test_halts.py",
    "relay/holes/deadletters.py": "relay/holes/test_oversize.py",
    "relay/holes/markers.py": "relay/holes/test_filling.py",
    "relay/hot/link.py": "relay/test_sink.py",
    "relay/hot/native.py": "relay/hot/test_plain.py",
    "relay/locate/compare.py": "relay/locate/copies/test_parted.py",
    "relay/locate/filled.py": "relay/locate/cleaned/test_superseded.py",
    "relay/locate/resync.py": "relay/locate/test_position.py",
    "relay/locate/rules.py": "relay/locate/test_position.py",
    "relay/locate/seeking.py": "relay/trouble/test_one_broker_down.py",
    "relay/locate/tails.py": "relay/locate/test_position.py",
    "relay/mapped/beginning.py": "relay/mapped/test_anew.py",
    "relay/mapped/lane.py": "relay/mapped/test_locate.py",
    "relay/mapped/takeover.py": "relay/mapped/test_fence.py",
    "relay/topics/gone.py": "service/test_worker_bad_input.py",
    "relay/watch/asking.py": "relay/watch/test_idle.py",
    "sandbox/broker.py": "sandbox/test_cluster.py",
    "sandbox/kafka/ivy.py": "sandbox/kafka/test_jars.py",
    "sandbox/kafka/java.py": "sandbox/kafka/test_jars.py",
    "sandbox/jvm.py": "audit/independent/test_segments.py",
    "sandbox/standing/keeper.py": "sandbox/standing/test_cli.py",
    "sandbox/kraft.py": "sandbox/test_arguments.py",
    "sandbox/children/process.py": "sandbox/children/test_guardian.py",
    "sandbox/standing/requests.py": "sandbox/test_probe.py",
    "sandbox/zookeeper.py": "sandbox/test_cluster.py",
    "service/channel.py": "service/test_child.py",
    "service/selection.py": "service/config/test_kinds.py",
    "service/config/checks/flows.py": "service/config/test_mistakes.py",
    "service/config/checks/refusal.py": "service/config/checks/test_entries.py",
    "service/config/cluster.py": "service/config/test_load.py",
    "service/config/flow.py": "service/config/test_load.py",
    "service/config/model.py": "service/config/test_load.py",
    "service/config/reread.py": "service/flows/test_reloading.py",
    "service/config/resolve.py": "service/config/test_load.py",
    "service/config/settings.py": "service/config/test_load.py",
    "service/importing/make/assemble.py": "service/importing/make/test_flows.py",
    "service/importing/make/picking.py": "service/importing/make/test_protection.py",
    "service/importing/read/authentication.py": "service/importing/read/test_strimzi.py",
    "service/importing/read/scopes.py": "service/importing/read/test_dedicated.py",
    "service/importing/translate/values.py": "service/importing/test_checking.py",
    "service/importing/writing.py": "service/importing/test_command.py",
    "service/group/expel.py": "service/flows/test_flow.py",
    "service/http/client.py": "service/http/test_server.py",
    "service/http/connections.py": "service/http/test_server.py",
    "service/log/plainlog.py": "service/test_memory_of_processes.py",
    "service/offsets/sides.py": "service/offsets/test_translate.py",
    "service/sync/copies.py": "service/sync/test_plan.py",
    "service/sync/settings.py": "service/sync/test_plan.py",
    "service/plan/ask/deadletters.py": "service/plan/checks/test_deadletters.py",
    "service/plan/ask/topics.py": "service/plan/test_command.py",
    "service/plan/document.py": "service/plan/test_report.py",
    "service/plan/fix.py": "service/plan/test_command.py",
    "service/plan/model.py": "service/plan/test_report.py",
    "service/plan/table.py": "service/plan/test_report.py",
    "service/telemetry/backlog.py": "service/telemetry/test_fleet.py",
    "service/telemetry/families/audits.py": "service/telemetry/test_audits.py",
    "service/telemetry/families/clusters.py": "service/telemetry/test_exposition.py",
    "service/telemetry/families/flows.py": "service/telemetry/test_exposition.py",
    "service/telemetry/families/labels.py": "service/telemetry/test_exposition.py",
    "service/telemetry/families/workers.py": "service/telemetry/test_exposition.py",
    "service/telemetry/metrics.py": "service/telemetry/test_exposition.py",
    "service/telemetry/otlp/attempts.py": "service/telemetry/otlp/test_exporting.py",
    "service/telemetry/otlp/sending.py": "service/telemetry/otlp/test_exporting.py",
    "service/telemetry/usage/exposition.py": "service/telemetry/test_exposition.py",
    "service/telemetry/usage/histograms.py": "service/telemetry/test_exposition.py",
    "service/telemetry/usage/gc_stats.py": "service/telemetry/test_snapshot.py",
    "service/telemetry/usage/resources.py": "service/telemetry/test_exposition.py",
    "spark_submit.py": "audit/spark/test_spark_cluster.py",
}
"""Module -> the test file that covers it."""


def modules() -> list[str]:
    """Below ``mirror``; a package's own file says only what it is, and a program's only what it starts."""
    found = (path.relative_to(ROOT / "mirror") for path in sorted((ROOT / "mirror").rglob("*.py")))
    return [str(path) for path in found if path.name not in ("__init__.py", "__main__.py")]


def own_test(module: str) -> Path:
    path = Path(module)
    return ROOT / "tests" / path.parent / f"test_{path.name}"


@pytest.mark.parametrize("module", modules())
def test_every_module_has_its_tests(module: str) -> None:
    if own_test(module).exists():
        assert module not in COVERED, "it has a test file of its own"
    else:
        assert module in COVERED, f"write {own_test(module).relative_to(ROOT)}, or say here which file covers it"
        assert (ROOT / "tests" / COVERED[module]).exists()


def test_nothing_is_covered_that_is_not_there() -> None:
    assert set(COVERED) <= set(modules())


def test_no_folder_is_a_heap() -> None:
    """A dozen modules at most."""
    packages = [ROOT / name for name in ("mirror", "bench", "chaos", "lab", "tests")]
    crowded = {
        str(folder.relative_to(ROOT)): len(files)
        for folder in (*packages, *(path for package in packages for path in package.rglob("*") if path.is_dir()))
        if len(files := [path for path in folder.glob("*.py") if path.name != "__init__.py"]) > 12
    }
    assert crowded == {}


def test_no_folder_of_documents_is_a_heap() -> None:
    """A dozen at most. Of runbooks there is one for each alert: their README finds them."""
    folders = {path.parent for path in (ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "runbooks"}
    crowded = {folder.name: len(files) for folder in folders if len(files := list(folder.glob("*.md"))) > 12}
    assert crowded == {}
