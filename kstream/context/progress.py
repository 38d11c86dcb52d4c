"""Progress of each batch, as JSON values. A name of Structured Streaming's progress is used if the meaning is the same."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from kstream.batch import BatchInfo, StreamInputInfo
from kstream.batch_time import Duration


class BatchProgress(dict[str, Any]):
    """A dict of JSON values, with pyspark's two text forms."""

    @property
    def json(self) -> str:
        """The progress in one line."""
        return json.dumps(self)

    @property
    def prettyJson(self) -> str:
        """The progress indented, for people."""
        return json.dumps(self, indent=2)


def progress_of(info: BatchInfo, interval: Duration, name: str) -> BatchProgress:
    """Return the progress of a batch that has ended.

    `batchId` is the batch time, and durations are in milliseconds. Rates are in records per second; `processedRowsPerSecond` is null if the
    processing took 0 ms. `sources` has an entry for each input, with the facts that the input reports (`startOffset`, `endOffset`, lag …).
    `numRecordErrors` is there if the errors policy of the input has left out records. `state` has the figures of states. A figure that is
    not known is left out.
    `outputs` has an entry for each output operation; its `failureReason` is null after a success.

    Args:
        info: the facts about the batch.
        interval: the batch interval.
        name: the name of the application.
    """
    rows, seconds = info.numRecords(), info.processingDelay() / 1000
    state = info.state.by_key()
    moment = datetime.fromtimestamp(info.batch_time.milliseconds / 1000, timezone.utc)
    return BatchProgress(
        name=name,
        timestamp=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        batchId=info.batch_time.milliseconds,
        numInputRows=rows,
        inputRowsPerSecond=rows / (interval.milliseconds / 1000),
        processedRowsPerSecond=rows / seconds if seconds > 0 else None,
        durationMs={
            "schedulingDelay": info.schedulingDelay(),
            "processingDelay": info.processingDelay(),
            "totalDelay": info.totalDelay(),
        },
        **({"state": state} if state else {}),
        sources=[
            {"id": number, "numInputRows": source.num_records, **_found(source), **source.progress.values}
            for number, source in sorted(info.inputs.items())
        ],
        outputs=[
            {
                "id": number,
                "name": output.op_name,
                "durationMs": output.duration(),
                "failureReason": output.failure_reason,
                **output.figures.by_key(),
            }
            for number, output in sorted(info.outputs.items())
        ],
    )


def _found(source: StreamInputInfo) -> dict[str, int]:
    """Return what the tasks have found: the records that the errors policy has left out, if any, and the figures that are known."""
    errors = {"numRecordErrors": source.num_record_errors} if source.num_record_errors else {}
    return errors | source.figures.by_key()
