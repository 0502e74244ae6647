"""deploy/kubernetes, rendered by kubectl, and held against Kubernetes' schemas and the mirror's own code."""

import asyncio
import copy
import re
import tomllib
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mirror.cli import main
from mirror.service.config import Config
from mirror.service.exits import EXIT_CONFIG
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.http.routes import Pages
from mirror.service.supervisor import STOP_MARGIN_S
from tests.deploy import dockerfile, manifests, rules
from tests.deploy.manifests import CREDENTIALS, OLDEST, OVERLAYS, ROOT, Manifest, kustomized, newest, of_kind
from tests.service.http.asking import asked

PRODUCTION = "overlays/production"
KINDS = {
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "StatefulSet",
    "PodDisruptionBudget",
    "NetworkPolicy",
}
SOURCES: dict[str, Callable[[], list[Manifest]]] = {
    "base": partial(kustomized, "base"),
    PRODUCTION: partial(kustomized, PRODUCTION),
    "helm": partial(manifests.charted, podMonitor={"enabled": True}, prometheusRule={"enabled": True}),
}
"""What makes manifests: all that holds for one holds for each of them."""


@pytest.fixture(params=SOURCES)
def found(request: pytest.FixtureRequest) -> list[Manifest]:
    """The manifests of the base, of the overlay, or of the chart; those of the audit are test_audit_job.py's."""
    return manifests.of_mirror(SOURCES[request.param]())


# Kubernetes would take it.


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_kubectl_renders_the_same(overlay: str) -> None:
    """The one that the tests install, and the machine's own."""
    for program in manifests.kubectls():
        other = list(yaml.safe_load_all(manifests.rendered(overlay, program)))
        assert sorted(other, key=str) == sorted(kustomized(overlay), key=str)
    more = [] if overlay == "base" else ["Namespace", "PodMonitor", "PrometheusRule", "CronJob", "NetworkPolicy"]
    assert sorted(each["kind"] for each in kustomized(overlay)) == sorted([*KINDS, *more])


@pytest.mark.parametrize("version", [OLDEST, newest()])
def test_it_is_valid(found: list[Manifest], version: str) -> None:
    assert {each["kind"]: told for each in found if (told := manifests.wrong(each, version))} == {}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("StatefulSet", ["spec", "podManagmentPolicy"], "Parallel"),
        ("StatefulSet", ["spec", "replicas"], "two"),
        ("PodDisruptionBudget", ["spec", "unhealthyPodEviction"], "AlwaysAllow"),
        ("PodMonitor", ["spec", "jobLable"], "x"),
        ("PodMonitor", ["spec", "podMetricsEndpoints", 0, "interval"], "often"),
        ("PrometheusRule", ["spec", "groups", 0, "rules", 0, "keep_firing_for"], "a while"),
        ("PrometheusRule", ["spec", "groups", 0, "rules", 0, "unless"], "up"),
    ],
)
def test_what_is_wrong_is_seen(kind: str, path: list[str | int], value: object) -> None:
    manifest = copy.deepcopy(of_kind(kustomized(PRODUCTION), kind))
    at: Any = manifest
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert manifests.wrong(manifest, OLDEST)


# Everything in it fits together.


def selectors(found: list[Manifest]) -> dict[str, Manifest]:
    """By what selects pods."""
    spread = manifests.pod(found)["topologySpreadConstraints"]
    chosen = {f"spread over {each['topologyKey']}": each["labelSelector"]["matchLabels"] for each in spread}
    for manifest in found:
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Service":
            chosen["Service"] = spec["selector"]
        elif selector := {"selector", "podSelector"} & spec.keys():
            chosen[manifest["kind"]] = spec[selector.pop()]["matchLabels"]
    return chosen


def test_it_is_the_pods_that_are_selected(found: list[Manifest]) -> None:
    """An empty selector would take every pod of the namespace."""
    labels = of_kind(found, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    chosen = selectors(found)
    assert {"Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"} <= chosen.keys()
    for selector in chosen.values():
        assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        assert selector.items() <= labels.items()


def test_a_headless_service_names_the_pods(found: list[Manifest]) -> None:
    service, pods = of_kind(found, "Service"), of_kind(found, "StatefulSet")
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["name"] == pods["spec"]["serviceName"]
    assert pods["spec"]["podManagementPolicy"] == "Parallel"
    account = of_kind(found, "ServiceAccount")["metadata"]["name"]
    assert manifests.pod(found)["serviceAccountName"] == account


def test_the_image_is_the_one_that_is_built(found: list[Manifest]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    name, _, tag = manifests.container(found)["image"].rpartition(":")
    assert (name.rpartition("/")[2], tag) == ("mirror", version)
    _, (*_, final) = dockerfile.stages(dockerfile.DOCKERFILE.read_text())
    assert manifests.container(found)["args"] == dockerfile.only(final, "CMD").words


def test_the_pod_is_restricted(found: list[Manifest]) -> None:
    """What the Pod Security Standard `restricted` asks for, and more."""
    pod, container = manifests.pod(found), manifests.container(found)
    security, own = pod["securityContext"], container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert all({"configMap", "secret"} & volume.keys() for volume in pod["volumes"])
    assert pod["automountServiceAccountToken"] is False
    assert of_kind(found, "ServiceAccount")["automountServiceAccountToken"] is False
    _, (*_, final) = dockerfile.stages(dockerfile.DOCKERFILE.read_text())
    user = f"{security['runAsUser']}:{security['runAsGroup']}"
    assert user == dockerfile.only(final, "USER").rest
    # Credentials belong to root and this group, and nobody else may read them.
    (mode,) = [each["secret"]["defaultMode"] for each in pod["volumes"] if "secret" in each]
    assert (mode, security["fsGroup"]) == (0o440, security["runAsGroup"])


# It fits the mirror.


def answer(path: str) -> int:
    """How a mirror without flows answers this path."""
    reloading = SimpleNamespace(successful=True, succeeded_at=0.0, granularity="partition")
    served: Any = SimpleNamespace(flows={}, processes=WorkerProcesses(), address="", reloading=reloading)
    return asyncio.run(asked(Pages(served), "GET", path)).status


def test_probes_ask_for_what_is_there(found: list[Manifest]) -> None:
    assert answer("/-/nothing") == HTTPStatus.NOT_FOUND
    container = manifests.container(found)
    assert {path: answer(path) for path in manifests.probes(found)} == {"/-/healthy": 200, "/-/ready": 200}
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/-/healthy", "it never depends on brokers"
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {container[name]["httpGet"]["port"] for name in container if name.endswith("Probe")} == ports.keys()
    for monitor in (each for each in found if each["kind"] == "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"] in ports, answer(endpoint["path"])) == (True, HTTPStatus.OK)


def test_the_configuration_is_valid(found: list[Manifest], tmp_path: Path) -> None:
    """With the credentials where the pod has them, and not without."""
    text = manifests.config_of(found)
    config, secrets = tmp_path / "mirror.yaml", tmp_path / "credentials"
    config.write_text(text.replace(CREDENTIALS, str(secrets)))
    command = ["validate", "-c", str(config)]
    assert CliRunner().invoke(main, command).exit_code == EXIT_CONFIG
    secrets.mkdir()
    for name in re.findall(rf"{CREDENTIALS}/([\w.-]+)", text):
        (secrets / name).write_text("x")
    told = CliRunner().invoke(main, command)
    assert told.exit_code == 0, told.output


def test_every_file_of_the_configuration_is_mounted(found: list[Manifest]) -> None:
    mounts = {each["mountPath"] for each in manifests.container(found)["volumeMounts"]}
    assert mounts == {"/etc/mirror", CREDENTIALS}
    data = yaml.safe_load(manifests.config_of(found))
    files = re.findall(r"(?<![\w.])/[\w./-]+", str([data["clusters"], data["flows"]]))
    assert len(files) == 4
    assert all(file.startswith(f"{CREDENTIALS}/") for file in files)


def test_everybody_who_has_to_reaches_the_port(found: list[Manifest]) -> None:
    """Probes come to the pod's address; by the network policy, nobody else does but Prometheus."""
    data = yaml.safe_load(manifests.config_of(found))
    host, _, port = data["http.listen"].rpartition(":")
    assert host == "0.0.0.0"
    assert [each["containerPort"] for each in manifests.container(found)["ports"]] == [int(port)]
    assert [each["port"] for each in of_kind(found, "Service")["spec"]["ports"]] == [int(port)]
    policy = of_kind(found, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = policy["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    (who,) = ingress["from"]
    assert who == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def test_the_pod_reaches_brokers_and_name_servers(found: list[Manifest]) -> None:
    names, brokers = of_kind(found, "NetworkPolicy")["spec"]["egress"]
    assert {(each["protocol"], each["port"]) for each in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    data = yaml.safe_load(manifests.config_of(found))
    servers = ",".join(cluster["bootstrap.servers"] for cluster in data["clusters"].values())
    open_ports = {each["port"] for each in brokers["ports"]}
    assert {int(each.rpartition(":")[2]) for each in servers.split(",")} <= open_ports
    assert brokers.keys() == {"ports"}, "brokers may be anywhere"


def test_a_pod_has_the_time_to_stop(found: list[Manifest]) -> None:
    """For the drain and what the supervisor gives its workers afterwards, with room for its own end."""
    data = yaml.safe_load(manifests.config_of(found))
    drain_ms = data.get("drain.timeout.ms", Config.model_fields["drain_timeout_ms"].default)
    assert manifests.pod(found)["terminationGracePeriodSeconds"] >= drain_ms / 1000 + STOP_MARGIN_S + 10


def test_at_most_one_pod_is_taken_away(found: list[Manifest]) -> None:
    spec = of_kind(found, "PodDisruptionBudget")["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


# Monitoring.


def test_the_rules_are_those_that_the_mirror_prints() -> None:
    """In the component and in the chart; `make rules` writes them."""
    alerts = rules.ALERTS.read_text()
    assert rules.RULE.read_text() == rules.rule(alerts)
    assert rules.COPY.read_text() == alerts


def test_what_is_rendered_are_these_rules(found: list[Manifest]) -> None:
    groups = yaml.safe_load(rules.ALERTS.read_text())["groups"]
    for each in (one for one in found if one["kind"] == "PrometheusRule"):
        assert each["spec"]["groups"] == groups


@pytest.mark.parametrize("source", [PRODUCTION, "helm"])
def test_the_job_is_the_one_that_the_alert_asks_for(source: str) -> None:
    found = SOURCES[source]()
    label = of_kind(found, "PodMonitor")["spec"]["jobLabel"]
    job = of_kind(found, "StatefulSet")["spec"]["template"]["metadata"]["labels"][label]
    (down,) = [
        rule["expr"]
        for group in of_kind(found, "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
        if rule["alert"] == "MirrorDown"
    ]
    assert down == f'up{{job="{job}"}} == 0'


# The overlay.


def test_a_change_of_the_configuration_is_a_rollout() -> None:
    """The pods name another ConfigMap."""
    names = {of_kind(kustomized(overlay), "ConfigMap")["metadata"]["name"] for overlay in OVERLAYS}
    assert len(names) == 2
    assert all(re.fullmatch(r"mirror-[a-z0-9]{10}", name) for name in names)


def test_the_namespace_of_the_example_enforces_it() -> None:
    found = kustomized(PRODUCTION)
    namespace = of_kind(found, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = {each["metadata"]["namespace"] for each in found if each is not namespace}
    assert others == {namespace["metadata"]["name"]}
