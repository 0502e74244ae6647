"""Injects faults into real brokers and mirrors. Every scenario ends with a comparison of both sides, record by record.

``python -m chaos`` runs the suite; ``chaos.suite.plan`` lists the environment variables that it reads.
"""
