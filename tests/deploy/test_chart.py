"""The Helm chart: linted, rendered, and the same as deploy/kubernetes."""

import tomllib
from typing import Any

import pytest
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from tests.deploy import manifests
from tests.deploy.manifests import CHART, ROOT, Manifest, base_config, charted, kustomized, of_kind

WARNING = 2
"""Of Helm's severities."""


def complaints(values: dict[str, Any]) -> list[str]:
    """What lint says that is more than a hint."""
    told = lint(str(CHART), values, strict=True)
    return [str(each["error"]) for each in told["messages"] if each["severity"] >= WARNING]


def test_it_is_linted() -> None:
    assert complaints({"config": base_config()}) == []
    assert complaints({"config": base_config(), "audit": {"enabled": True}}) == []


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"config": ""},
        {"replicas": "two"},
        {"replicas": -1},
        {"replica": 3},
        {"image": {"repository": "mirror", "digest": "sha256:1"}},
        {"networkPolicy": {"enabled": True, "brokerPorts": [0]}},
        {"networkPolicy": {"enabled": True, "kafkaPorts": [9092]}},
        {"podMonitor": {"enabled": "yes"}},
        {"podLabels": {"a": 1}},
        {"credentials": {"secretName": "x", "mountPath": "/etc/mirror/credentials"}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    """By their schema, by lint and when it is rendered."""
    wrong = {"config": base_config()} | values if values else {}
    assert complaints(wrong)
    with pytest.raises(HelmError), Chart.load(str(CHART)) as chart:
        chart.render(values=wrong, name="mirror")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("http.listen: '127.0.0.1:9464'", "http.listen must be"),
        ("http.listen: '0.0.0.0:0'", "http.listen must be"),
        ("clusters: {}", "http.listen must be"),
        ("clusters: [", "config is not YAML"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: str, said: str) -> None:
    """When it is rendered: lint does not fail for what a template refuses."""
    with pytest.raises(HelmError, match=said):
        charted(config=config)


def test_versions_are_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert chart["kubeVersion"] == f">={manifests.OLDEST}.0-0"


def plain(found: list[Manifest]) -> dict[str, Manifest]:
    """By kind, without what a chart names in another way: labels of its own, the ConfigMap's hash."""
    by_kind = {each["kind"]: each for each in found}
    template = by_kind["StatefulSet"]["spec"]["template"]
    del template["metadata"]
    for volume in template["spec"]["volumes"]:
        volume.get("configMap", {}).pop("name", None)
    template["spec"]["containers"][0].pop("imagePullPolicy", None)
    for each in by_kind.values():
        del each["metadata"]
    return by_kind


def test_by_default_it_is_the_base() -> None:
    assert plain(charted()) == plain(kustomized("base"))


def test_monitoring_is_the_component() -> None:
    mine = charted(podMonitor={"enabled": True}, prometheusRule={"enabled": True})
    for kind in ("PodMonitor", "PrometheusRule"):
        assert of_kind(mine, kind)["spec"] == of_kind(kustomized("overlays/production"), kind)["spec"]


def test_a_change_of_the_configuration_is_a_rollout() -> None:
    def template(config: str) -> Manifest:
        found: Manifest = of_kind(charted(config=config), "StatefulSet")["spec"]["template"]
        return found

    assert template(base_config()) == template(base_config())
    assert template(base_config()) != template(base_config() + "workers: 2\n")


@pytest.mark.parametrize(
    ("line", "seconds"),
    [("", 60), ("drain.timeout.ms: 0", 45), ("drain.timeout.ms: 1500", 47), ("drain.timeout.ms: 3600000", 3645)],
)
def test_a_longer_drain_is_waited_for(line: str, seconds: int) -> None:
    found = charted(config=f"{base_config()}{line}\n")
    assert manifests.pod(found)["terminationGracePeriodSeconds"] == seconds


def test_every_value_is_used() -> None:
    """Set to something else, each of them shows."""
    digest = "sha256:" + "0" * 64
    found = charted(
        name="west-east",
        config=base_config().replace("0.0.0.0:9464", "[::]:8080"),
        image={"repository": "r/m", "digest": digest, "pullPolicy": "Always"},
        imagePullSecrets=[{"name": "pull"}],
        replicas=5,
        credentials={"secretName": "other", "mountPath": "/run/other"},
        env=[{"name": "RACK", "value": "a"}],
        resources={"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}},
        podAnnotations={"a": "b"},
        podLabels={"c": "d"},
        nodeSelector={"e": "f"},
        tolerations=[{"operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        priorityClassName="high",
        spreadOver="topology.kubernetes.io/zone",
        networkPolicy={"monitoringNamespace": "m", "dnsNamespace": "n", "brokerPorts": [19092]},
        podMonitor={"enabled": True, "interval": "5s", "labels": {"g": "h"}},
        prometheusRule={"enabled": True, "labels": {"i": "j"}},
    )
    assert [manifests.wrong(each, manifests.OLDEST) for each in found] == [""] * 8
    assert {each["metadata"]["name"] for each in found} == {"west-east-mirror"}
    pods = of_kind(found, "StatefulSet")["spec"]
    pod, container = manifests.pod(found), manifests.container(found)
    assert pods["replicas"] == 5
    assert pods["template"]["metadata"]["labels"]["c"] == "d"
    assert pods["template"]["metadata"]["annotations"]["a"] == "b"
    assert (container["image"], container["imagePullPolicy"]) == (f"r/m@{digest}", "Always")
    assert container["env"][1:] == [{"name": "RACK", "value": "a"}]
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    assert container["resources"] == {"requests": {"cpu": 2, "memory": "192Mi"}, "limits": {"memory": "1Gi"}}
    assert container["volumeMounts"][1]["mountPath"] == "/run/other"
    assert pod["volumes"][1]["secret"]["secretName"] == "other"
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "pull"}], {"e": "f"})
    assert (pod["tolerations"], pod["affinity"]) == ([{"operator": "Exists"}], {"nodeAffinity": {}})
    assert pod["priorityClassName"] == "high"
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    policy = of_kind(found, "NetworkPolicy")["spec"]
    namespaces = [policy["ingress"][0]["from"][0], policy["egress"][0]["to"][0]]
    names = [each["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for each in namespaces]
    assert (names, policy["egress"][1]["ports"]) == (["m", "n"], [{"protocol": "TCP", "port": 19092}])
    monitor = of_kind(found, "PodMonitor")
    assert (monitor["metadata"]["labels"]["g"], monitor["spec"]["podMetricsEndpoints"][0]["interval"]) == ("h", "5s")
    assert of_kind(found, "PrometheusRule")["metadata"]["labels"]["i"] == "j"


def test_what_can_be_left_out() -> None:
    found = charted(credentials={"secretName": ""}, spreadOver="", networkPolicy={"enabled": False})
    assert {each["kind"] for each in found} == {
        "ConfigMap", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet",
    }  # fmt: skip
    assert [each["name"] for each in manifests.pod(found)["volumes"]] == ["config"]
    assert "topologySpreadConstraints" not in manifests.pod(found)
