"""What fails, on purpose, on real brokers: every scenario ends with a comparison of both sides, record by record.

``python -m chaos`` runs it; ``plan`` says what it obeys in the environment.
"""
