"""Injects faults on real brokers: every scenario ends with a comparison of both sides, record by record.

``python -m chaos`` runs it; ``plan`` lists the environment variables that it reads.
"""
