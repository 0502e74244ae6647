"""Every kind of fault that a copy can have, by what is spoilt."""

from tests.audit.faults.kinds import adopted, compacted, content, disk, holes, lost, mapped
from tests.audit.faults.kinds.fault import FAULTS, Fault, Shape, Told, of_shapes

__all__ = [
    "FAULTS", "Fault", "Shape", "Told", "adopted", "compacted", "content", "disk", "holes", "lost", "mapped",
    "of_shapes",
]  # fmt: skip
