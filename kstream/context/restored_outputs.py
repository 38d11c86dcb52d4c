"""restore_outputs: lets the outputs of a job take over from an earlier driver, at a start."""

from __future__ import annotations

from kstream.batch import Json
from kstream.checkpoint import LogContents
from kstream.checkpoint.outcomes import read_completion
from kstream.checkpoint.plan_log import nonce_of_epoch
from kstream.dstream import DStreamGraph
from kstream.dstream.output import Writer
from kstream.storage import FileStore

FIRST_EPOCH = 1


def restore_outputs(graph: DStreamGraph, store: FileStore | None, epoch: int, contents: LogContents | None) -> None:
    """Call `restore` of each output that takes part in the life of a batch. Blocks on the store; asks nothing without such an output.

    Args:
        graph: the streams.
        store: the checkpoint; None without a checkpoint directory.
        epoch: that of the driver that starts.
        contents: those of the log; None without a checkpoint directory.

    Raises:
        CheckpointError: stored data cannot be used.
        StorageError: the store failed.
        Exception: an output cannot take over.
    """
    outputs = graph.outputs()
    if not outputs:
        return
    if store is None or contents is None:
        writer, stored = Writer("", epoch, "", None), dict[str, Json]()
    else:
        writer = Writer(nonce_of_epoch(store, FIRST_EPOCH), epoch, nonce_of_epoch(store, epoch), contents.last_planned)
        stored = _newest_outcomes(store, contents, {output.name for output in outputs})
    for output in outputs:
        output.restore(writer, stored.get(output.name))


def _newest_outcomes(store: FileStore, contents: LogContents, wanted: set[str]) -> dict[str, Json]:
    """Return the newest stored outcome of each of these outputs that has one: a read for each completion, until all are found."""
    found: dict[str, Json] = {}
    for time in sorted(contents.done, reverse=True):
        if found.keys() == wanted:
            break
        plan = contents.plans[time]
        if not wanted & set(plan.outputs):
            continue
        completion = read_completion(store, time, plan.epoch)
        for name, value in () if completion is None else completion.outputs.items():
            if name in wanted:
                found.setdefault(name, value)
    return found
