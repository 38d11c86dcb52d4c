"""How far back a batch looks: which batches' RDDs of each stream are asked for, when some of them carry state that is kept. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kstream.batch_time import Time
from kstream.dstream.base import DStreamBase
from kstream.dstream.stateful_dstream import StatefulDStream


def in_order(outputs: Iterable[DStreamBase]) -> list[DStreamBase]:
    """The outputs and all streams they depend on, each before those it is made of."""
    seen: set[int] = set()
    order: list[DStreamBase] = []

    def visit(stream: DStreamBase) -> None:
        if id(stream) in seen:
            return
        seen.add(id(stream))
        for parent in stream.dependencies:
            visit(parent)
        order.append(stream)

    for output in outputs:
        visit(output)
    return order[::-1]


def asked_from(order: Iterable[DStreamBase], first: Time, kept: Callable[[StatefulDStream, Time], Time | None]) -> dict[DStreamBase, Time]:
    """The oldest batch of each stream that is asked for when `first` is the oldest batch that runs.

    `kept(stream, time)` says at which batch, not after `time`, the state of a stream is known; it computes what comes after that. None:
    the stream is not looked at behind.
    """
    asked: dict[DStreamBase, Time] = {}
    for stream in order:
        time = asked.setdefault(stream, first)
        if isinstance(stream, StatefulDStream):
            known = kept(stream, time)
            time = time if known is None else min(time, known + stream.slide_duration)
        back = stream.reaches_back_to(time)
        for parent in stream.dependencies:
            asked[parent] = min(asked.get(parent, first), back)
    return asked
