"""The metric families of ``/metrics``: one module for each subject."""
