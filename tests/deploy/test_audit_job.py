"""The nightly audit in Kubernetes: the component of deploy/kubernetes and the chart's, held against schemas, the
mirror's own pods and the command that they run; and the rules of docs/OPERATING.md, as promtool sees them."""

import copy
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from helm_python.chart import Chart
from helm_python.errors import HelmError

from mirror.audit.command import ExitCode
from mirror.audit.spark import jvm
from mirror.service.exits import EXIT_CONFIG, EXIT_USAGE
from tests.deploy import dockerfile, manifests, test_audit_units
from tests.deploy.manifests import CHART, OLDEST, ROOT, Manifest, base_config, charted, kustomized, newest, of_kind
from tests.prometheus.test_rules import promtool
from tests.shown import parse

PRODUCTION = "overlays/production"
SOURCES: dict[str, Callable[[], list[Manifest]]] = {
    PRODUCTION: partial(kustomized, PRODUCTION),
    "helm": partial(charted, audit={"enabled": True}),
}
OPERATING = (ROOT / "docs" / "OPERATING.md").read_text()
(SECTION,) = re.findall(r"^### The audit, every night\n(.*?)^##", OPERATING, re.MULTILINE | re.DOTALL)
NAME_MOST = 52
"""Characters of a CronJob's name: those of its Jobs have eleven more."""
DAY_S = 86_400


@pytest.fixture(params=SOURCES)
def found(request: pytest.FixtureRequest) -> list[Manifest]:
    """All manifests, the mirror's as well."""
    return SOURCES[request.param]()


def cron(found: list[Manifest]) -> Manifest:
    spec: Manifest = of_kind(found, "CronJob")["spec"]
    return spec


def pod(found: list[Manifest]) -> Manifest:
    spec: Manifest = cron(found)["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def container(found: list[Manifest]) -> Manifest:
    (one,) = pod(found)["containers"]
    return dict(one)


def labels(found: list[Manifest]) -> dict[str, str]:
    return dict(cron(found)["jobTemplate"]["spec"]["template"]["metadata"]["labels"])


# Kubernetes would take it.


@pytest.mark.parametrize("version", [OLDEST, newest()])
def test_it_is_valid(found: list[Manifest], version: str) -> None:
    mine = manifests.of_audit(found)
    assert sorted(each["kind"] for each in mine) == ["CronJob", "NetworkPolicy"]
    assert {each["kind"]: told for each in mine if (told := manifests.wrong(each, version))} == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["concurencyPolicy"], "Forbid"),
        (["schedule"], 2),
        (["jobTemplate", "spec", "backoffLimit"], "none"),
        (["jobTemplate", "spec", "restartPolicy"], "Never"),
        (["jobTemplate", "spec", "template", "spec", "volumes", 2, "emptyDir", "size"], "1Gi"),
    ],
)
def test_what_is_wrong_is_seen(path: list[str | int], value: object) -> None:
    manifest = copy.deepcopy(of_kind(kustomized(PRODUCTION), "CronJob"))
    at: Any = manifest["spec"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert manifests.wrong(manifest, OLDEST)


# It is the mirror's pod, with another command.


def test_it_has_the_mirrors_configuration_and_credentials(found: list[Manifest]) -> None:
    """By the same names (the ConfigMap's has a hash), at the same places, and no more rights."""
    mine, others = pod(found), manifests.pod(found)
    assert [each for each in mine["volumes"] if each["name"] != "tmp"] == others["volumes"]
    mounts = container(found)["volumeMounts"]
    assert [each for each in mounts if each["name"] != "tmp"] == manifests.container(found)["volumeMounts"]
    for name in ("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert mine[name] == others[name]
    for name in ("securityContext", "env"):
        assert container(found)[name] == manifests.container(found)[name]
    assert container(found)["securityContext"]["readOnlyRootFilesystem"] is True


def test_what_may_be_written_is_where_spark_writes(found: list[Manifest]) -> None:
    """/tmp, which is what Python and Java take where no variable says otherwise."""
    (writable,) = [each for each in container(found)["volumeMounts"] if not each.get("readOnly")]
    (volume,) = [each for each in pod(found)["volumes"] if each["name"] == writable["name"]]
    assert (writable["mountPath"], volume["emptyDir"].keys()) == ("/tmp", {"sizeLimit"})
    assert not {"TMPDIR", "SPARK_LOCAL_DIRS"} & {each["name"] for each in container(found)["env"]}


def test_the_command_is_the_images_and_the_mirrors(found: list[Manifest]) -> None:
    _, stages = dockerfile.stages(dockerfile.DOCKERFILE.read_text())
    stage = dockerfile.named(stages, "audit")
    assert container(found)["args"] == dockerfile.only(stage, "CMD").words
    parse(["mirror", *container(found)["args"]])
    assert "command" not in container(found), "the image's entry point"
    name, _, tag = container(found)["image"].rpartition(":")
    said = dockerfile.only(stage, "LABEL").pairs
    title, version = (said[f"org.opencontainers.image.{each}"] for each in ("title", "version"))
    assert (name.rpartition("/")[2], tag) == (title, version)
    assert dockerfile.only(stage, "USER").rest == f"{pod(found)['securityContext']['runAsUser']}:65532"


def test_nobody_takes_its_pods_for_the_mirrors(found: list[Manifest]) -> None:
    """Neither the Service nor the budget, and Prometheus looks for no port of it."""
    others = manifests.of_mirror(found)
    selectors = [each["spec"].get("selector") or each["spec"]["podSelector"] for each in others if _selects(each)]
    assert len(selectors) > 3
    for selector in selectors:
        chosen = selector.get("matchLabels", selector)
        assert chosen
        assert not chosen.items() <= labels(found).items()


def _selects(manifest: Manifest) -> bool:
    return bool({"selector", "podSelector"} & manifest.get("spec", {}).keys())


def test_it_reaches_what_the_mirror_reaches_and_nobody_reaches_it(found: list[Manifest]) -> None:
    mine = of_kind(manifests.of_audit(found), "NetworkPolicy")["spec"]
    others = of_kind(manifests.of_mirror(found), "NetworkPolicy")["spec"]
    assert mine["egress"] == others["egress"]
    assert mine["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in mine
    assert mine["podSelector"]["matchLabels"].items() == labels(found).items()


# What becomes of it.


def test_nothing_is_tried_again(found: list[Manifest]) -> None:
    """A second try that passes would hide that the first one did not."""
    job = cron(found)["jobTemplate"]["spec"]
    assert (job["backoffLimit"], pod(found)["restartPolicy"]) == (0, "Never")
    assert not {"podFailurePolicy", "completions", "parallelism", "ttlSecondsAfterFinished"} & job.keys()
    assert cron(found)["failedJobsHistoryLimit"] >= 1, "the pod has the exit code"


def test_it_is_every_night_and_one_at_a_time(found: list[Manifest]) -> None:
    """At the hour of systemd's timer, with the same patience."""
    spec = cron(found)
    (when,) = test_audit_units.values(test_audit_units.TIMER, "OnCalendar")
    (most,) = test_audit_units.values(test_audit_units.SERVICE, "TimeoutStartSec")
    minute, hour, *rest = spec["schedule"].split()
    assert f"*-*-* {int(hour):02}:{int(minute):02}:00" == when
    assert (rest, spec["timeZone"], spec["concurrencyPolicy"]) == (["*"] * 3, "Etc/UTC", "Forbid")
    deadline_s = spec["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert f"{deadline_s // 3600}h" == most
    assert deadline_s + spec["startingDeadlineSeconds"] <= DAY_S


def test_it_has_the_time_to_stop(found: list[Manifest]) -> None:
    assert pod(found)["terminationGracePeriodSeconds"] >= jvm.END_S + jvm.GOING_S + 10


def test_its_size_is_what_was_measured(found: list[Manifest]) -> None:
    """docs/AUDIT.md says what all processes of an audit hold together on two processors."""
    resources = container(found)["resources"]
    audit = " ".join((ROOT / "docs" / "AUDIT.md").read_text().split())
    assert "With two processors, all processes of an audit together hold less than 2 GB" in audit
    requested, limit = (int(resources[kind]["memory"].removesuffix("Gi")) << 30 for kind in ("requests", "limits"))
    assert resources["limits"]["cpu"] == "2"
    assert 2 * 10**9 < requested < limit
    assert f"{requested >> 30} GiB are requested" in SECTION
    assert f"limit is {limit >> 30} GiB" in SECTION


# The chart.


def plain(found: list[Manifest]) -> list[Manifest]:
    """Without what a chart names in another way."""
    made = copy.deepcopy(sorted(manifests.of_audit(found), key=lambda each: str(each["kind"])))
    for each in made:
        del each["metadata"]
    for volume in pod(made)["volumes"]:
        volume.get("configMap", {}).pop("name", None)
    for name in ("image", "imagePullPolicy"):
        pod(made)["containers"][0].pop(name, None)
    return made


def test_the_charts_is_the_component() -> None:
    assert plain(SOURCES["helm"]()) == plain(SOURCES[PRODUCTION]())
    assert manifests.of_audit(charted()) == []


def test_every_value_is_used() -> None:
    digest = "sha256:" + "0" * 64
    found = charted(
        name="west-east",
        config=base_config(),
        audit={
            "enabled": True,
            "schedule": "30 3 * * 0",
            "timeZone": "Europe/Berlin",
            "flow": "west->east",
            "image": {"repository": "r/a", "digest": digest},
            "resources": {"limits": {"memory": "9Gi"}},
            "temporarySize": "1Gi",
        },
        image={"repository": "r/m", "pullPolicy": "Always"},
        imagePullSecrets=[{"name": "pull"}],
        credentials={"secretName": "other", "mountPath": "/run/other"},
        env=[{"name": "RACK", "value": "a"}],
        nodeSelector={"e": "f"},
        tolerations=[{"operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        networkPolicy={"dnsNamespace": "n", "brokerPorts": [19092]},
    )
    mine = manifests.of_audit(found)
    assert [manifests.wrong(each, OLDEST) for each in mine] == [""] * 2
    assert {each["metadata"]["name"] for each in mine} == {"west-east-mirror-audit"}
    assert labels(found) == {"app.kubernetes.io/name": "mirror-audit", "app.kubernetes.io/instance": "west-east"}
    assert (cron(found)["schedule"], cron(found)["timeZone"]) == ("30 3 * * 0", "Europe/Berlin")
    assert container(found)["args"][-2:] == ["--flow", "west->east"]
    parse(["mirror", *container(found)["args"]])
    assert (container(found)["image"], container(found)["imagePullPolicy"]) == (f"r/a@{digest}", "Always")
    assert container(found)["env"][1:] == [{"name": "RACK", "value": "a"}]
    assert container(found)["resources"]["limits"] == {"cpu": "2", "memory": "9Gi"}
    assert container(found)["volumeMounts"][1]["mountPath"] == "/run/other"
    assert pod(found)["volumes"][1]["secret"]["secretName"] == "other"
    assert pod(found)["volumes"][2]["emptyDir"] == {"sizeLimit": "1Gi"}
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "serviceAccountName"):
        assert pod(found)[name] == manifests.pod(found)[name]
    names, brokers = of_kind(mine, "NetworkPolicy")["spec"]["egress"]
    assert names["to"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "n"}
    assert brokers["ports"] == [{"protocol": "TCP", "port": 19092}]


def test_what_can_be_left_out() -> None:
    found = charted(audit={"enabled": True}, credentials={"secretName": ""}, networkPolicy={"enabled": False})
    assert [each["kind"] for each in manifests.of_audit(found)] == ["CronJob"]
    assert [each["name"] for each in pod(found)["volumes"]] == ["config", "tmp"]
    assert [each["name"] for each in container(found)["volumeMounts"]] == ["config", "tmp"]


def test_a_long_name_is_cut() -> None:
    """The audit's is no longer than a CronJob's may be, and still its own."""
    found = charted(name="mirror-" + "x" * 46, audit={"enabled": True})
    name = of_kind(found, "CronJob")["metadata"]["name"]
    assert len(name) <= NAME_MOST
    assert name.endswith("x-audit")


@pytest.mark.parametrize(
    "audit",
    [
        {"enabled": "yes"},
        {"schedule": "every night"},
        {"schedule": "TZ=UTC 0 2 * * *"},
        {"timeZone": ""},
        {"image": {"repository": "", "tag": "1"}},
        {"image": {"digest": "sha256:1"}},
        {"image": {"pullPolicy": "Always"}},
        {"resources": {"limit": {"memory": "1Gi"}}},
        {"temporarySize": "much"},
        {"flows": ["west->east"]},
    ],
    ids=str,
)
def test_wrong_values_are_refused(audit: dict[str, Any]) -> None:
    with pytest.raises(HelmError), Chart.load(str(CHART)) as chart:
        chart.render(values={"config": base_config(), "audit": {"enabled": True} | audit}, name="mirror")


# What docs/OPERATING.md says of it.


def test_the_exit_codes_are_those_of_the_audit() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", SECTION, re.MULTILINE)}
    assert told == {*ExitCode, EXIT_USAGE, EXIT_CONFIG}


def test_its_names_are_the_ones_that_are_made() -> None:
    found = kustomized(PRODUCTION)
    selected, created = re.findall(r"-l (\S+)", SECTION), re.findall(r"--from=cronjob/(\S+)", SECTION)
    assert set(selected) == {f"app.kubernetes.io/name={labels(found)['app.kubernetes.io/name']}"}
    assert created == [of_kind(found, "CronJob")["metadata"]["name"]]


def rules() -> Manifest:
    """The PrometheusRule that the document has."""
    (text,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    rule: Manifest = yaml.safe_load(text)
    return rule


def test_the_rules_are_such_that_the_operator_takes() -> None:
    """Each asks for this CronJob, wherever it asks for anything."""
    assert manifests.wrong(rules(), OLDEST) == ""
    name = of_kind(kustomized(PRODUCTION), "CronJob")["metadata"]["name"]
    for group in rules()["spec"]["groups"]:
        for each in group["rules"]:
            assert each["expr"].count(f'{{cronjob="{name}"}}') == len(re.findall(r"kube_\w+", each["expr"])) > 1


class Night(NamedTuple):
    """What kube-state-metrics says of a CronJob that was made at 0, and which alerts fire when."""

    status: dict[str, str]
    """By the end of the metric's name, in promtool's notation."""
    fires: dict[str, list[str]]
    """Alerts by the time."""
    cronjob: str = "mirror-audit"


FAILED, STALE = "MirrorAuditJobFailed", "MirrorAuditJobStale"
NIGHTS = {
    "passed": Night(
        {"status_last_schedule_time": "100x80", "status_last_successful_time": "200x80", "status_active": "0x80"},
        {"2h": [], "48h": [], "50h": [STALE]},
    ),
    "failed after one that passed": Night(
        {"status_last_schedule_time": "300x80", "status_last_successful_time": "200x80", "status_active": "0x80"},
        {"0": [], "2h": [FAILED], "50h": [FAILED, STALE]},
    ),
    "none has passed": Night(
        {"status_last_schedule_time": "300x80", "status_active": "0x80"}, {"2h": [FAILED], "50h": [FAILED, STALE]}
    ),
    "none has begun": Night({"status_active": "0x80"}, {"2h": [], "48h": [], "50h": [STALE]}),
    "one is under way": Night(
        {"status_last_schedule_time": "300x80", "status_last_successful_time": "200x80", "status_active": "1x80"},
        {"2h": []},
    ),
    "then one was run by hand": Night(
        {
            "status_last_schedule_time": "300x80",
            "status_last_successful_time": "200x10 40000x70",
            "status_active": "0x80",
        },
        {"9h": [FAILED], "12h": [], "50h": []},
    ),
    "of another CronJob": Night({"status_last_schedule_time": "300x80", "status_active": "0x80"}, {"50h": []}, "other"),
}


@pytest.mark.parametrize("night", NIGHTS)
def test_the_rules_say_whether_the_last_audit_has_passed(night: str, tmp_path: Path) -> None:
    status, fires, cronjob = NIGHTS[night]
    (tmp_path / "rules.yaml").write_text(json.dumps(rules()["spec"]))
    of = {each["alert"]: each for group in rules()["spec"]["groups"] for each in group["rules"]}
    where = {"namespace": "mirror", "cronjob": cronjob}
    named = ",".join(f'{name}="{value}"' for name, value in where.items())
    checks = [
        {
            "alertname": alert,
            "eval_time": at,
            "exp_alerts": [
                {"exp_labels": where | rule["labels"], "exp_annotations": rule["annotations"]}
                for _ in range(alert in firing)
            ],
        }
        for at, firing in fires.items()
        for alert, rule in of.items()
    ]
    series = [
        {"series": f"kube_cronjob_{name}{{{named}}}", "values": values}
        for name, values in ({"created": "0x80"} | status).items()
    ]
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1h",
        "tests": [{"interval": "1h", "input_series": series, "alert_rule_test": checks}],
    }
    (tmp_path / "tests.yaml").write_text(json.dumps(tests))
    code, told = promtool("test", "rules", str(tmp_path / "tests.yaml"))
    assert (code, "SUCCESS" in told) == (0, True), told
