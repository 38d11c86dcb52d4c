"""restore_outputs: lets the outputs of a job take over from an earlier driver, at a start."""

from __future__ import annotations

import logging

from kstream.batch import Json
from kstream.batch_time import Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.outcomes import read_completion
from kstream.checkpoint.plan_log import nonce_of_epoch
from kstream.checkpoint.settled import in_settled
from kstream.dstream import DStreamGraph
from kstream.errors import CorruptRecordError, FormatVersionError, MissingFileError
from kstream.output import Writer
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
FIRST_EPOCH = 1


def restore_outputs(graph: DStreamGraph, store: FileStore | None, epoch: int, contents: LogContents | None) -> None:
    """Call `restore` of each output that takes part in the life of a batch. Blocks on the store; asks nothing without such an output.

    Args:
        graph: the streams.
        store: the checkpoint; None without a checkpoint directory.
        epoch: that of the driver that starts.
        contents: those of the log; None without a checkpoint directory.

    Raises:
        CorruptRecordError: the record of an epoch is damaged.
        StorageError: the store failed.
        Exception: an output cannot take over.
    """
    outputs = graph.outputs()
    if not outputs:
        return
    if store is None or contents is None:
        writer, stored = Writer("", epoch, "", lambda _: None, lambda _time, _nonce: False), dict[str, Json]()
    else:
        writer = _writer(store, epoch, contents)
        stored = _newest_outcomes(store, contents, {output.name for output in outputs})
    for output in outputs:
        output.restore(writer, stored.get(output.name))


def _writer(store: FileStore, epoch: int, contents: LogContents) -> Writer:
    def nonce_of(number: int) -> str | None:
        try:
            return nonce_of_epoch(store, number)
        except MissingFileError:
            return None

    def knows(time: Time, nonce: str) -> bool:
        plan = contents.plans.get(time)
        return in_settled(time, contents.settled) if plan is None else plan.nonce == nonce

    return Writer(nonce_of_epoch(store, FIRST_EPOCH), epoch, nonce_of_epoch(store, epoch), nonce_of, knows)


def _newest_outcomes(store: FileStore, contents: LogContents, wanted: set[str]) -> dict[str, Json]:
    """Return the newest stored outcome of each of these outputs that has one: a read for each completion, until all are found.

    A damaged completion is a warning: its batch has ended, and an older one may tell as much.
    """
    found: dict[str, Json] = {}
    for time in sorted(contents.done, reverse=True):
        plan = contents.plans[time]
        if found.keys() == wanted or not wanted & set(plan.outputs):
            continue
        try:
            completion = read_completion(store, time, plan.epoch)
        except (CorruptRecordError, FormatVersionError) as e:
            logger.warning("the completion of batch %s cannot be read, so outputs are restored from an older one: %s", time, e)
            continue
        for name, value in () if completion is None else completion.outputs.items():
            if name in wanted:
                found.setdefault(name, value)
    return found
