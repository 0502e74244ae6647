"""docs/OPERATING.md lists every metric of ours, and none that is not exported."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.prometheus.exported import exposition

OPERATING = Path(__file__).resolve().parents[2] / "docs" / "OPERATING.md"


def listed() -> set[str]:
    """The names in the table's first column; ``_x`` behind another name stands for one that ends so."""
    section = OPERATING.read_text(encoding="utf-8").partition("\n## Metrics\n")[2].partition("\n## ")[0]
    found = set()
    for cell in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE):
        names = re.findall(r"`([a-z_*]+)`", cell)
        found |= {name if name[0] != "_" else names[0].rpartition("_")[0] + name for name in names}
    return {name for name in found if "*" not in name}


def test_every_metric_is_listed_and_no_other() -> None:
    families = {family.name for family in text_string_to_metric_families(exposition())}
    ours = {name.removesuffix("_total") for name in families if name.startswith("mirror_")}
    assert listed() == ours
