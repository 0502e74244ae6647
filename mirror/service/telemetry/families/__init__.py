"""The metric families of ``/metrics``, by what they are about."""
