"""ExactlyOnceOutput: what every output with receipts knows of its batches, from its restore on."""

from __future__ import annotations

from kstream.batch import Json
from kstream.batch_time import Time
from kstream.output import Output, Writer
from kstream.sinks.receipt import WrittenBatch, check_has_checkpoint


class ExactlyOnceOutput(Output):
    """An output that leaves receipts of what it writes. A subclass writes, and calls `_note` for each batch that is written.

    It asks its sink for receipts when the first batch is written, in the job: there an outage fails only a try, and not the start.
    """

    is_ordered = True
    keeps_layout = True
    _driver: Writer
    """Known from `restore` on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._newest: WrittenBatch | None = None
        """The newest batch that is written, as far as the checkpoint and this driver know."""
        self._written: dict[Time, int] = {}
        """The number of records of each batch that is written and whose completion is not stored."""

    def restore(self, writer: Writer, stored: Json) -> None:
        """Take over from an earlier driver: note who writes now, and the newest batch that was written as of the stored outcome.

        Asks nobody. ConfigurationError without a checkpoint directory.
        """
        check_has_checkpoint(self.name, writer)
        self._driver = writer
        self._newest = None if stored is None else WrittenBatch(stored["batch"], stored["partitions"], frozenset(stored.get("empty", ())))
        self._written.clear()

    def _note(self, time: Time, num_records: int, newest: WrittenBatch | None = None) -> None:
        """Note that a batch is written. `newest`: the batch, if no later one is written; None also if it has no partition with records."""
        self._written[time] = num_records
        self._newest = newest or self._newest

    def outcome(self, time: Time) -> Json:
        """Return the newest written batch, and how many records of this one are known to be written; None before the first written batch.

        A batch without partitions tells of an older one: the next driver reads only the newest completion.
        """
        newest = self._newest
        if newest is None:
            return None
        return {"batch": newest.time_ms, "partitions": newest.num_partitions, "records": self._written.get(time, 0)}

    def committed(self, time: Time) -> None:
        """Forget how many records of the batch are written: its completion has the number."""
        self._written.pop(time, None)
