"""The metrics of ``/metrics``, sent to an OpenTelemetry collector (OTLP over HTTP)."""
