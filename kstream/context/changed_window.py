"""The rules of a start with another duration of a window with an inverse than its stored totals have.

What leaves such a window is taken out of the totals of the window before. From the totals of another duration the wrong batches would be
taken out. So the start is refused, unless the user permits it (`window:ID` in `recovery.allow`). The stored totals are then set aside, and
the window begins anew, as a new window does: with the batches whose plans are still kept.
"""

from __future__ import annotations

from collections.abc import Collection

from kstream.batch import StateCheckpoint
from kstream.checkpoint import LogContents
from kstream.checkpoint.binding import WINDOW
from kstream.checkpoint.state_log import newest_states, read_states
from kstream.context.settings import RECOVERY_ALLOW
from kstream.dstream import DStreamGraph
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.errors import WindowChangedError
from kstream.scheduler.changed_windows import of_another_window, other_window
from kstream.scheduler.state_checkpointer import of_this_interval
from kstream.storage import FileStore


def _windows(graph: DStreamGraph) -> list[StatefulDStream]:
    """Return the windows with an inverse that an output needs."""
    return [stream for stream in graph.active_states() if stream.totals_window is not None]


def may_have_changed(graph: DStreamGraph, store: FileStore) -> bool:
    """Return whether the newest files of state do not show that each window has its stored duration: the whole log then has to tell.

    Blocks on the store, if the graph has windows with an inverse: two listings and the completions of the newest totals.

    Args:
        graph: the streams of this start.
        store: the checkpoint.

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
        raise _refused(store, refused, *changed[refused[0]])
    return set(changed)


def _refused(store: FileStore, words: Collection[str], stream: StatefulDStream, stored: StateCheckpoint) -> WindowChangedError:
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
