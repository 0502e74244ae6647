"""Writes what deploy/ has of mirror/configs/alerts.yaml: the PrometheusRule, and the chart's copy (``make rules``)."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "mirror" / "configs" / "alerts.yaml"
RULE = ROOT / "deploy" / "kubernetes" / "monitoring" / "prometheusrule.yaml"
COPY = ROOT / "deploy" / "helm" / "mirror" / "alerts.yaml"
HEAD = """# mirror/configs/alerts.yaml as the Prometheus operator takes it. Written by `make rules`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mirror
spec:
"""


def rule(alerts: str) -> str:
    """Returns the manifest with these rules: the text below ``groups:``, indented."""
    _, _, groups = alerts.partition("groups:\n")
    lines = ["groups:", *groups.splitlines()]
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


def write() -> None:
    """Writes both files."""
    alerts = ALERTS.read_text(encoding="utf-8")
    RULE.write_text(rule(alerts), encoding="utf-8")
    COPY.write_text(alerts, encoding="utf-8")


if __name__ == "__main__":
    write()
