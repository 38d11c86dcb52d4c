"""When a task of continuous processing is run again, and when its failures end the stream. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kstream.continuous.messages import FailedRecord
from kstream.continuous.ports import EpochReceipt
from kstream.errors import EpochTaskFailedError

MOST_FAILURES = 3
"""So many failures at one record, one after the other, end the stream."""
_FIRST_MS = 100
_LONGEST_MS = 2000


def restart_delay_ms(failures: int) -> int:
    """Return the pause after this many failures in a row, the present one included."""
    return min(_FIRST_MS << min(max(failures - 1, 0), 10), _LONGEST_MS)


def begin_at(receipt: EpochReceipt | None, reported: int | None, start: int) -> int:
    """Return where a partition is read from. Its receipt is the truth, whatever was reported or stored.

    Args:
        receipt: the receipt, read after the identity of the earlier task was taken.
        reported: the last position that was reported; it counts only if receipts were deleted.
        start: where the partition begins by its assignment.
    """
    if receipt is not None:
        return receipt.position
    return start if reported is None else max(start, reported)


@dataclass(slots=True)
class RecordFailures:
    """How often the function of the user has failed at the same record, for each partition."""

    _counts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict[tuple[str, int], tuple[int, int]])

    def failed(self, record: FailedRecord, error: str) -> EpochTaskFailedError | None:
        """Count a failure. Return the error that ends the stream, if it has failed too often."""
        key = (record.topic, record.partition)
        offset, count = self._counts.get(key, (record.offset, 0))
        count = count + 1 if offset == record.offset else 1
        self._counts[key] = (record.offset, count)
        if count < MOST_FAILURES:
            return None
        return EpochTaskFailedError(
            f"the function of a continuous stream has failed {count} times at {record}: {error}. Correct the function, and start again: "
            "the record is read again. Nothing behind it was written.",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            times=count,
            reason=error,
        )
