"""UnfinishedWork: what a graceful stop may leave, whether a restart can run it, and how long the stop waits for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kstream.batch_time import Time, listed
from kstream.conf import Settings
from kstream.context.settings import GRACEFUL_STOP_TIMEOUT
from kstream.dstream import DStreamGraph, ReceiverInputDStream
from kstream.scheduler.job_generator import PATIENCE_INTERVALS
from kstream.wal.settings import WRITE_AHEAD_LOG

AN_HOUR_S = 3600.0
"""The default timeout of a graceful stop, if no restart can run unfinished work. It applies to the receivers, then to the batches."""


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """The batches and received blocks of a job that have not ended when it stops. Any thread.

    Attributes:
        settings: those of the context.
        graph: the streams.
        has_checkpoint: whether there is a checkpoint directory.
    """

    settings: Settings
    graph: DStreamGraph
    has_checkpoint: bool

    @property
    def outlives_driver(self) -> bool:
        """Whether a restart can run it: there is a checkpoint, and the data of every input outlives the driver."""
        return self.has_checkpoint and all(stream.outlives_driver for stream in self.graph.active_inputs())

    def patience(self) -> float:
        """Return the timeout of a graceful stop in seconds. It applies to the receivers, then to the batches.

        The setting wins. Without it the timeout is ten batch intervals if a restart can run unfinished work, else an hour. Spark waits ten
        batch intervals, and an hour for jobs that it has submitted.
        """
        said_ms = self.settings[GRACEFUL_STOP_TIMEOUT]
        if said_ms is not None:
            return said_ms / 1000
        return PATIENCE_INTERVALS * self.graph.batch_duration.seconds if self.outlives_driver else AN_HOUR_S

    def why_lost(self) -> str:
        """Return why no restart can run it, and the remedy, for the log."""
        longer = f"Set a longer {GRACEFUL_STOP_TIMEOUT}"
        if not self.has_checkpoint:
            return f"there is no checkpoint directory. Set one (ssc.checkpoint). {longer}"
        lost = [stream for stream in self.graph.active_inputs() if not stream.outlives_driver]
        log = f" Set {WRITE_AHEAD_LOG}=true." if any(isinstance(stream, ReceiverInputDStream) for stream in lost) else ""
        return f"the data of {', '.join(map(repr, lost))} is lost with the driver.{log} {longer}"


def left_in_words(batches: Collection[Time], blocks: int, waited: float) -> str:
    """Return what a graceful stop has left, for the log. Pure.

    Args:
        batches: those that have a plan and have not ended.
        blocks: the number of received blocks that are in no batch.
        waited: how long the stop has waited for the batches, in seconds.
    """
    left = sorted(batches)
    rest = [f"{len(left)} {'batch' if len(left) == 1 else 'batches'} did not end within {waited:.1f} s: {listed(left)}"] if left else []
    if blocks:
        rest.append(f"{blocks} received {'block is' if blocks == 1 else 'blocks are'} in no batch after {waited:.1f} s")
    return "; ".join(rest) or f"a batch was still being planned after {waited:.1f} s"
