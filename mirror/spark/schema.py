"""The columns of ``kafka-raw-batches``, for reading and writing. docs/SPARK.md describes them.

A row is one entry of a partition's log: a record batch of magic 2, or a message (or wrapper) of magic 0 or 1.
"""

import pyarrow as pa

FORMAT = "kafka-raw-batches"
"""The name of the data source in Spark."""

ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("record_count", pa.int32()),
        ("magic", pa.int8()),
        ("codec", pa.string()),
        ("timestamp_type", pa.string()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("base_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("size", pa.int32()),
        ("crc_ok", pa.bool_()),
        ("batch", pa.binary()),
    ]
)
"""Timestamps are in ms since 1970, ``size`` in bytes."""

_DDL = {
    pa.string(): "string",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}
SCHEMA = ", ".join(f"{field.name} {_DDL[field.type]}" for field in ARROW_SCHEMA)
"""The columns of ``ARROW_SCHEMA`` in Spark's syntax (DDL)."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Values of the column ``codec``, by the low three attribute bits. No broker writes other bits: these would be shown as
``unknown 5`` to ``unknown 7``."""
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
"""Values of the column ``timestamp_type``."""
