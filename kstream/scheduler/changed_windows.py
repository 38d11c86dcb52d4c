"""Which stored totals a window with an inverse may continue from, after its duration has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kstream.batch import StateCheckpoint
from kstream.checkpoint.state_log import StoredStates
from kstream.dstream.stateful_dstream import StatefulDStream


def of_another_window(state: StateCheckpoint, stream: StatefulDStream) -> bool:
    """Return whether a state has the totals of a window of another duration than the stream's.

    A state without a duration counts as the stream's: it is empty, or an older kstream has written it, or it is no window's.
    """
    return None not in (state.window, stream.totals_window) and state.window != stream.totals_window


def other_window(states: Sequence[StateCheckpoint], stream: StatefulDStream) -> StateCheckpoint | None:
    """Return the newest state of a stream, if it has the totals of another window; else None.

    Args:
        states: those that records name, oldest first.
        stream: their stream.
    """
    return states[-1] if states and of_another_window(states[-1], stream) else None


def of_these_windows(stored: StoredStates, streams: Iterable[StatefulDStream]) -> StoredStates:
    """Return the states from which streams can continue with the windows that they have now.

    What leaves a window is taken out of its totals. So totals of another duration would stay wrong for ever. Older totals of the duration
    of now do not count either: the batches that a restart needs after them may be removed.

    Args:
        stored: the states that completions and records of failures name.
        streams: those of the graph.
    """
    found = dict(stored.checkpoints)
    for stream in streams:
        states = found.pop(stream.state_id, [])
        others = [index for index, state in enumerate(states) if of_another_window(state, stream)]
        kept = states[others[-1] + 1 :] if others else states
        if kept:
            found[stream.state_id] = kept
    return replace(stored, checkpoints=found)
