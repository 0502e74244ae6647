"""The columns, which other programs rely on."""

from mirror.records.header import Codec
from mirror.spark import FORMAT, SCHEMA, KafkaRawBatches
from mirror.spark.schema import CODECS

COLUMNS = (
    "topic string, partition int, base_offset bigint, last_offset bigint, record_count int, magic tinyint, "
    "codec string, timestamp_type string, is_transactional boolean, is_control boolean, leader_epoch int, "
    "producer_id bigint, producer_epoch smallint, base_sequence int, base_timestamp bigint, max_timestamp bigint, "
    "size int, crc_ok boolean, batch binary"
)


def test_the_names() -> None:
    assert SCHEMA == COLUMNS
    assert FORMAT == KafkaRawBatches.name() == "kafka-raw-batches"
    assert tuple(codec.name.lower() for codec in Codec) == CODECS
