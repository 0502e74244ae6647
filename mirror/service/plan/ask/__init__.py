"""Asks the clusters, and returns plain facts. Changes nothing, and leaves the findings to ``plan.checks``."""
