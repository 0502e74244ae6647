"""The errors of the sink. Spark shows their text inside its own error, so the text begins with the stable reason."""

from enum import Enum


class Reason(Enum):
    """Why rows are not written. ``slug``: a stable name, for programs; ``remedy``: what to do."""

    OPTIONS = ("options", "correct the options; docs/SPARK-sink.md has all of them")
    COLUMNS = ("columns", "select the columns topic, partition, base_offset and batch, as the source names them")
    NOT_IN_ORDER = (
        "not_in_order",
        "write mirror.spark.in_order(df), so that one task has all rows of a partition, in the order of their offsets",
    )
    NOT_SENDABLE = ("not_sendable", "leave the row out, or write what mirror.raw.sendable makes of it")
    GAP = (
        "gap",
        "with offsets=exact each offset needs its batch. Write with offsets=mapped, or copy the topic by the daemon, "
        "which fills such holes with markers",
    )
    LEADING_OFFSETS = (
        "leading_offsets",
        "set max.leading.filler to at least this number, so that filler takes these offsets and is deleted again; or "
        "write with offsets=mapped",
    )
    NOT_A_COPY = (
        "not_a_copy",
        "write into a new topic; if others write to this one, with offsets=mapped. A flow belongs to one source topic: "
        "name another flow for another source, or for a topic that was made anew",
    )
    FOREIGN_WRITER = (
        "foreign_writer",
        "with offsets=exact nobody else may write to the topic: write into a new one, or with offsets=mapped. If the "
        "daemon has copied it until now, name its flow and source.cluster.id",
    )
    BEHIND = (
        "behind",
        "a flow appends a partition's batches in the order of their offsets: write the missing ones under another flow",
    )
    MISPLACED = (
        "misplaced",
        "somebody else wrote at the same moment. What is named stands in the log, and nothing takes it back: if it is "
        "not wanted there, write the partition into a new topic",
    )
    LOST_END = (
        "lost_end",
        "the destination has lost what it had acknowledged (an unclean election): let Spark try the task again, which "
        "writes what is missing of its rows",
    )
    FENCED = ("fenced", "another attempt of this task, or another query of this flow, is ahead: let only one write")
    REFUSED = ("refused", "the broker does not take the batch")
    UNREACHABLE = (
        "unreachable",
        "see that the cluster is well, then let Spark try again: nothing is doubled",
    )

    def __init__(self, slug: str, remedy: str) -> None:
        self.slug = slug
        self.remedy = remedy


class SinkError(Exception):
    """Rows are not written. Rows that the same task has written before stay in the log.

    Attributes:
        reason: why they are not written.
    """

    def __init__(self, reason: Reason, detail: str, remedy: str = "") -> None:
        super().__init__(f"{reason.slug}: {detail}; {remedy or reason.remedy}")
        self.reason = reason
