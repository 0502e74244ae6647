"""Grafana dashboards, generated: ``python -m deploy.grafana.generate``."""
