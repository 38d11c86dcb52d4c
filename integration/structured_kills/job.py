"""The driver that is killed: writes each batch to a file by its id, and notes each attempt with the offsets of Spark's checkpoint.

Argument: a JSON file with bootstrap, topic, directory, options (of the source) and settings (of Spark). Every record of the topic says
where it lies ("partition:offset"). The query ends when there is a file `stop`.
"""

from __future__ import annotations

import json
import os
import time as clock
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.exactness.job import append_line, replace_file
from integration.structured_kills.sink_job import run
from kstream.offsets.topic_offsets import by_partition


def offsets_of(checkpoint: Path, batch: int) -> dict[tuple[str, int], int]:
    """Where a batch ends, as Spark has stored it: the next offset by partition. Empty if there is no such batch."""
    stored = checkpoint / "offsets" / str(batch)
    found = by_partition(json.loads(stored.read_text().splitlines()[-1])) if stored.exists() else {}
    assert found is not None, f"{stored} has no offsets"
    return found


def writes_batches(root: Path) -> Callable[[Any, int], None]:
    """An output that is idempotent by the id of the batch."""

    def output(batch: Any, number: int) -> None:
        begin, end = (offsets_of(root / "checkpoint", n) for n in (number - 1, number))
        ranges = [[*p, begin.get(p, 0), at] for p, at in sorted(end.items())]
        append_line(root / "attempts.jsonl", {"time": number, "ranges": ranges, "pid": os.getpid(), "at": clock.monotonic_ns()})
        replace_file(root / "sink" / f"{number}.json", sorted(bytes(row.value).decode() for row in batch.collect()))

    return output


def start_query(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    root = Path(given["directory"])
    (root / "sink").mkdir(exist_ok=True)
    options = {"kafka.bootstrap.servers": given["bootstrap"], "subscribe": given["topic"], "startingOffsets": "earliest"}
    source = spark.readStream.format("kstream").schema("value BINARY").options(**options, **given["options"])
    writer = source.load().writeStream.foreachBatch(writes_batches(root)).option("checkpointLocation", str(root / "checkpoint"))
    query = writer.start()
    append_line(root / "started.jsonl", {"pid": os.getpid()})
    return query


if __name__ == "__main__":
    run(start_query)
