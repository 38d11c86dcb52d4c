"""SlowestOutput: the output operation of a batch that took the longest, for people who ask why batches are late. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kstream.batch.batch_info import BatchInfo


@dataclass(frozen=True, slots=True)
class SlowestOutput:
    """An output operation, such as `foreachRDD at job.py:41`, and how long it ran, in milliseconds."""

    name: str
    ms: int

    def text(self, processing_ms: int) -> str:
        """Return the sentence with its share of the processing time, such as `foreachRDD at job.py:41 took 7.9 of 8.2 s`."""
        if processing_ms < 1000:
            return f"{self.name} took {self.ms} of {processing_ms} ms"
        if self.ms < 1000:
            return f"{self.name} took {self.ms} ms of {processing_ms / 1000:.1f} s"
        return f"{self.name} took {self.ms / 1000:.1f} of {processing_ms / 1000:.1f} s"


def slowest_output(info: BatchInfo) -> SlowestOutput | None:
    """Return the output operation that took the longest of a batch that has ended; None if no duration is known, or all are 0.

    An output that had succeeded in an earlier try is left out: the processing time is that of the last try.
    """
    start = info.processing_start_ms
    if start is None:
        return None
    ran = [output for output in info.outputs.values() if output.start_ms is not None and output.start_ms >= start and output.duration() > 0]
    if not ran:
        return None
    longest = max(ran, key=lambda output: output.duration())
    return SlowestOutput(longest.op_name, longest.duration())
