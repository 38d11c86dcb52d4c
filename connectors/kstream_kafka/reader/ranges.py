"""Whether ranges are wholly on the brokers, asked before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import RangesNotAvailableError
from kstream_kafka.planning.offset_range import OffsetRange


def check_available(
    params: KafkaParams, ranges: Sequence[OffsetRange], make_client: Callable[[KafkaParams], DriverClient] | None = None
) -> None:
    """RangesNotAvailableError unless every range lies within its log, as createRDD of Spark 2.4 does. Blocks: two questions a broker."""
    if not ranges:
        return
    if make_client is None:
        from kstream_kafka.client.driver_client import KafkaDriverClient  # only who asks loads librdkafka

        make_client = KafkaDriverClient
    client = make_client(params)
    try:
        partitions = {(r.topic, r.partition) for r in ranges}
        begin, end = client.earliest(partitions), client.latest(partitions)
    finally:
        client.close()
    bad = [
        (r.topic, r.partition, r.fromOffset, r.untilOffset, begin[p].offset, end[p].offset)
        for r in ranges
        if not (begin[p := (r.topic, r.partition)].offset <= r.fromOffset <= r.untilOffset <= end[p].offset)
    ]
    if bad:
        raise RangesNotAvailableError(bad)
