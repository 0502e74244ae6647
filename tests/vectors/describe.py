"""What a captured answer holds, as kafka-python reads it: our own reading is held against this account in the index."""

from typing import Any

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record import MemoryRecords


def describe(api: str, version: int, data: bytes) -> dict[str, Any]:
    """Counts and values of one vector; ``api`` is fetch, produce or records (a record set alone)."""
    if api == "records":
        return {"size": len(data), **_records(data)}
    if api == "produce":
        return {"size": len(data), **_produce(version, data)}
    return {"size": len(data), **_fetch(version, data)}


def _fetch(version: int, data: bytes) -> dict[str, Any]:
    response = FetchResponse.decode(data, version=version, header=True)
    partitions = [one for topic in response.responses for one in topic.partitions]
    sets = [_records(bytes(one.records or b"")) for one in partitions]
    return {
        "partitions": len(partitions),
        "errors": [one.error_code for one in partitions],
        "aborted": [
            [one.producer_id, one.first_offset]
            for partition in partitions
            for one in partition.aborted_transactions or []
        ],
        "batches": sum(one["batches"] for one in sets),
        "records": sum(one["records"] for one in sets),
        "codecs": sorted({codec for one in sets for codec in one["codecs"]}),
        "magics": sorted({magic for one in sets for magic in one["magics"]}),
    }


def _records(data: bytes) -> dict[str, Any]:
    """Batches, records, codecs, magics of a record set. Filler and a partial batch at the end count for nothing."""
    found = MemoryRecords(data)
    batches = records = 0
    codecs, magics = set(), set()
    while found.has_next():
        batch = found.next_batch()
        batches += 1
        magics.add(batch.magic)
        codecs.add(batch.compression_type)
        records += len(list(batch))
    return {"batches": batches, "records": records, "codecs": sorted(codecs), "magics": sorted(magics)}


def _produce(version: int, data: bytes) -> dict[str, Any]:
    response = ProduceResponse.decode(data, version=version, header=True)
    partitions = [one for topic in response.responses for one in topic.partition_responses]
    return {
        "partitions": len(partitions),
        "errors": [one.error_code for one in partitions],
        "base_offsets": [one.base_offset for one in partitions],
        "messages": [one.error_message for one in partitions] if version >= 8 else [],
    }
