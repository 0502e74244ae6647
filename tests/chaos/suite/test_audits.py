"""What an audit is told of the flow that has copied."""

from chaos.suite.audits import Mode, mode_of


def test_an_audit_knows_how_holes_were_filled() -> None:
    """Markers of real transactions are the flow's own where it fills by them, and a stranger's everywhere else."""
    assert mode_of({}) == Mode() == ("exact", "markers", "shallow")
    assert mode_of({"offsets": "mapped", "replication.factor": 1}) == Mode(offsets="mapped")
    assert mode_of({"fill": "transaction", "mode": "deep"}) == Mode(fill="transaction", mode="deep")
