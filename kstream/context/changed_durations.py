"""The rules of a start with another batch interval, or another duration of a window with an inverse, than the checkpoint has.

**Interval.** The user names the last batch of the former interval (`interval:MS` in `recovery.allow`, `kstream run --interval-changed-at
MS`). All its batches must have ended: no batch of one interval can be made in the graph of another. Windows begin anew and contain only
batches of the new interval, as at a first start. A state continues, if it is stored as of that last batch. Offsets continue as ever.

**Window.** What leaves a window with an inverse is taken out of the totals of the window before. From the totals of another duration the
wrong batches would be taken out. So the start is refused, unless the user permits it (`window:ID` in `recovery.allow`). The stored totals
are then set aside, and the window begins anew, as a new window does: with the batches whose plans are still kept.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from kstream.batch import StateCheckpoint
from kstream.batch_time import Time, listed
from kstream.checkpoint import LogContents, Meta
from kstream.checkpoint.binding import INTERVAL, WINDOW
from kstream.checkpoint.state_log import newest_states, read_states
from kstream.context.settings import RECOVERY_ALLOW
from kstream.dstream import DStreamGraph
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.errors import IntervalChangedError, WindowChangedError
from kstream.scheduler.changed_windows import of_another_window, other_window
from kstream.scheduler.state_checkpointer import of_this_interval
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
    reason = _obstacle(graph, store, contents, meta, last)
    if reason:
        raise _refused(f"{problem}, and it cannot be changed now: {reason}", store, meta, graph)
    return replace(contents, meta=Meta(last.floor(given), given, last))


def _obstacle(graph: DStreamGraph, store: FileStore, contents: LogContents, meta: Meta, last: Time) -> str:
    """Return why the interval cannot be changed after batch `last`, with the remedy; an empty text if it can."""
    first = f"Start the job once more with its interval of {meta.interval}"
    if contents.pending:
        return f"batches {listed(contents.pending)} have not ended. {first}, and stop it gracefully when they have"
    streams = [stream for stream in graph.active_states() if stream.survives_absence]
    stored = read_states(store, contents, wanted=True).checkpoints if streams else {}
    for stream in streams:
        found = stored.get(stream.state_id, ())
        if found and found[-1].time != last:
            return (
                f"the state of {stream!r} is stored as of batch {found[-1].time}, and the batches after it are of the former interval. "
                f"{first} and with checkpoint({meta.interval.seconds:g}) on that stream, so that every batch stores it. Stop it "
                "gracefully, then change the interval"
            )
    return ""


def _refused(message: str, store: FileStore, meta: Meta, graph: DStreamGraph) -> IntervalChangedError:
    return IntervalChangedError(message, path=store.url, stored_ms=meta.interval.milliseconds, given_ms=graph.batch_duration.milliseconds)


def _windows(graph: DStreamGraph) -> list[StatefulDStream]:
    """Return the windows with an inverse that an output needs."""
    return [stream for stream in graph.active_states() if stream.totals_window is not None]


def may_have_changed(graph: DStreamGraph, store: FileStore) -> bool:
    """Return whether the newest files of state do not show that each window has its stored duration: the whole log then has to tell.

    Blocks on the store, if the graph has windows with an inverse: two listings and the completions of the newest totals.

    Raises:
        CorruptRecordError: a completion is damaged.
        StorageError: the store failed.
    """
    streams = {stream.state_id: stream for stream in _windows(graph)}
    newest = newest_states(store, streams) if streams else {}
    return any(not states or any(of_another_window(state, streams[id]) for state in states) for id, states in newest.items())


def check_windows(graph: DStreamGraph, store: FileStore, contents: LogContents, allowed: Collection[str]) -> set[str]:
    """Check that each window with an inverse has the duration of its stored totals. Changes nothing in the store.

    Blocks on the store, if the graph has such windows: it reads all completions.

    Args:
        graph: the streams of this start.
        store: the checkpoint.
        contents: of its log, with the batch interval of this start.
        allowed: the words of `spark.streaming.kstream.recovery.allow`.

    Returns:
        The words of `allowed` that this start needs.

    Raises:
        WindowChangedError: a window has another duration, and the user does not permit it. The message has the remedy.
        CorruptRecordError: no stored state of a stream is whole.
        StorageError: the store failed.
    """
    streams = _windows(graph)
    if not streams:
        return set()
    stored = read_states(store, contents, wanted=True)
    if contents.meta is not None and contents.meta.after is not None:
        stored = of_this_interval(stored, streams, contents.meta.after)
    changed = {WINDOW + s.state_id: (s, old) for s in streams if (old := other_window(stored.checkpoints.get(s.state_id, ()), s))}
    refused = [word for word in changed if word not in allowed]
    if refused:
        raise _refused_window(store, refused, *changed[refused[0]])
    return set(changed)


def _refused_window(store: FileStore, words: Collection[str], stream: StatefulDStream, stored: StateCheckpoint) -> WindowChangedError:
    """Return the error of a start that is refused, with all words that would permit it. It tells of the first window."""
    assert stored.window is not None and stream.totals_window is not None
    option = " ".join(f"--allow {word}" for word in words)
    return WindowChangedError(
        f"{store.url} has totals of {stream!r} over a window of {stored.window}, and its window is {stream.totals_window} now. What leaves "
        "the window could not be taken out of these totals. Put the old duration back, or start with a new checkpoint directory. Or, to "
        f"begin the window anew: `kstream run {option}`, or {RECOVERY_ALLOW}={','.join(words)}. It then has only the "
        "batches whose plans are still kept, and may be partial until it is filled.",
        path=store.url,
        stored_ms=stored.window.milliseconds,
        given_ms=stream.totals_window.milliseconds,
        streams=[word.removeprefix(WINDOW) for word in words],
    )
