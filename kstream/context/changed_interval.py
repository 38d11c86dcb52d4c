"""The rules of a start with another batch interval than the checkpoint has.

The user names the last batch of the former interval (`interval:MS` in `recovery.allow`, `kstream run --interval-changed-at MS`). All its
batches must have ended: no batch of one interval can be made in the graph of another. Windows begin anew and contain only batches of the
new interval, as at a first start. A state continues, if it is stored as of that last batch. Offsets continue as at any start.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from kstream.batch_time import Time, listed
from kstream.checkpoint import LogContents, Meta
from kstream.checkpoint.binding import INTERVAL
from kstream.checkpoint.state_log import read_states
from kstream.context.settings import RECOVERY_ALLOW
from kstream.dstream import DStreamGraph
from kstream.errors import IntervalChangedError
from kstream.storage import FileStore

logger = logging.getLogger(__name__)


def with_interval_of(graph: DStreamGraph, store: FileStore, contents: LogContents, allowed: Collection[str]) -> LogContents:
    """Return the contents of a log for a graph: with the changed interval, if the graph has another one and the user permits it.

    Changes nothing in the store. Blocks on the store, if the interval differs.

    Args:
        graph: the streams of this start.
        store: the checkpoint.
        contents: of its log.
        allowed: the words of `spark.streaming.kstream.recovery.allow`.

    Raises:
        IntervalChangedError: the interval differs and is not to be changed, or cannot be changed yet. The message has the remedy.
    """
    meta, given, last = contents.meta, graph.batch_duration, contents.last_planned
    if meta is None or meta.interval == given:
        return contents
    problem = f"{store.url} was written with a batch interval of {meta.interval}, this context has {given}"
    if last is None:
        raise _refused(f"{problem}: use the stored interval, or a new checkpoint directory", store, meta, graph)
    if f"{INTERVAL}{last.milliseconds}" not in allowed:
        ms = last.milliseconds
        raise _refused(
            f"{problem}. Use the stored interval. Or, to change the interval after batch {ms}, the last one: `kstream run "
            f"--interval-changed-at {ms}`, or {RECOVERY_ALLOW}={INTERVAL}{ms}. Offsets and states then continue, and "
            f"windows begin anew: they contain only batches of {given}",
            store,
            meta,
            graph,
        )
    reason = _obstacle(graph, store, contents, last)
    if reason:
        raise _refused(f"{problem}, and it cannot be changed now: {reason}", store, meta, graph)
    return replace(contents, meta=Meta(last.floor(given), given, last))


def _obstacle(graph: DStreamGraph, store: FileStore, contents: LogContents, last: Time) -> str:
    """Return why the interval cannot be changed after batch `last`, with the remedy; an empty text if it can."""
    assert contents.meta is not None
    first = f"Start the job once more with its interval of {contents.meta.interval}"
    if contents.pending:
        return f"batches {listed(contents.pending)} have not ended. {first}, and stop it gracefully when they have"
    streams = [stream for stream in graph.active_states() if stream.survives_absence]
    stored = read_states(store, contents, wanted=True).checkpoints if streams else {}
    for stream in streams:
        found = stored.get(stream.state_id, ())
        if found and found[-1].time != last:
            return (
                f"the state of {stream!r} is stored as of batch {found[-1].time}, and the batches after it are of the former interval. "
                f"{first} and with checkpoint({contents.meta.interval.seconds:g}) on that stream, so that every batch stores it. Stop it "
                "gracefully, then change the interval"
            )
    return ""


def _refused(message: str, store: FileStore, meta: Meta, graph: DStreamGraph) -> IntervalChangedError:
    """Return the error of a start that is refused."""
    return IntervalChangedError(message, path=store.url, stored_ms=meta.interval.milliseconds, given_ms=graph.batch_duration.milliseconds)
