"""What deploy/ renders to, and whether Kubernetes would take it: built-in kinds by published schemas, those of the
Prometheus operator by the copies in schemas/. Unknown fields are refused, as the API server does for kubectl."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from helm_python.chart import Chart

ROOT = Path(__file__).parents[2]
KUSTOMIZE = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "mirror"
OVERLAYS = ("base", "overlays/production")
OLDEST = "1.27"
"""The oldest Kubernetes that has every field in it; docs/OPERATING.md names it."""
CREDENTIALS = "/run/credentials/mirror"
OPERATOR = "monitoring.coreos.com/v1"

Manifest = dict[str, Any]


def kubectls() -> list[str]:
    """Programs that render: the one from PyPI, and the one on PATH if there is another."""
    ours = str(Path(sys.executable).parent / "kubectl")
    return list(dict.fromkeys([ours, shutil.which("kubectl") or ours]))


@cache
def rendered(overlay: str, program: str) -> str:
    """Returns what ``kubectl kustomize`` makes of a folder of deploy/kubernetes; it asks no cluster."""
    told = subprocess.run([program, "kustomize", str(KUSTOMIZE / overlay)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    return told.stdout


def kustomized(overlay: str) -> list[Manifest]:
    """Returns the manifests of a folder of deploy/kubernetes."""
    return list(yaml.safe_load_all(rendered(overlay, kubectls()[0])))


def charted(name: str = "mirror", **values: object) -> list[Manifest]:
    """Returns the manifests of the chart, with the configuration of the base unless the values have one."""
    with Chart.load(str(CHART)) as chart:
        texts = chart.render(values={"config": base_config(), **values}, name=name)
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


def base_config() -> str:
    """Returns the base's mirror.yaml."""
    return (KUSTOMIZE / "base" / "mirror.yaml").read_text()


def of_kind(found: list[Manifest], kind: str) -> Manifest:
    """Returns the one manifest of this kind."""
    (one,) = [each for each in found if each["kind"] == kind]
    return one


def of_mirror(found: list[Manifest]) -> list[Manifest]:
    """Returns the manifests of the mirror itself, without those of the nightly audit."""
    return [each for each in found if not each["metadata"]["name"].endswith("-audit")]


def of_audit(found: list[Manifest]) -> list[Manifest]:
    """Returns the manifests of the nightly audit."""
    return [each for each in found if each["metadata"]["name"].endswith("-audit")]


def pod(found: list[Manifest]) -> Manifest:
    """Returns the pod's specification."""
    spec: Manifest = of_kind(found, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def container(found: list[Manifest]) -> Manifest:
    """Returns the pod's one container."""
    (one,) = pod(found)["containers"]
    return dict(one)


def probes(found: list[Manifest]) -> set[str]:
    """Returns the paths that probes ask for."""
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    return {str(container(found)[name]["httpGet"]["path"]) for name in names}


def config_of(found: list[Manifest]) -> str:
    """Returns the mirror.yaml that the pod gets: of the ConfigMap that it mounts."""
    config = of_kind(found, "ConfigMap")
    (mounted,) = [each["configMap"]["name"] for each in pod(found)["volumes"] if "configMap" in each]
    assert mounted == config["metadata"]["name"]
    return str(config["data"]["mirror.yaml"])


def wrong(manifest: Manifest, version: str) -> str:
    """Returns what a Kubernetes of this version refuses of a manifest; empty if nothing."""
    try:
        if manifest["apiVersion"] == OPERATOR:
            jsonschema.Draft7Validator(_strict(manifest["kind"])).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        return str(error.message)
    return ""


@cache
def _strict(kind: str) -> Manifest:
    schema = json.loads((Path(__file__).parent / "schemas" / f"{kind.lower()}.json").read_text())
    # A server adds to these by itself, so the schema does not say what is in them.
    schema["properties"]["metadata"]["additionalProperties"] = True
    closed: Manifest = _closed(schema)
    return closed


def _closed(schema: Any) -> Any:
    """The schema, with no other fields than it names."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
    return made


def newest() -> str:
    """Returns the newest version of Kubernetes whose schemas are at hand."""
    return str(kubernetes_validate.latest_version())
