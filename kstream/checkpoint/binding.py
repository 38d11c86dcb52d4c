"""Binds stored streams to the streams of the graph that starts now: by name, else by position. Pure.

A plan stores the data of each input under the input's number: its position in the graph that made the plan. If the input has a name, the
plan stores that, too. After a change of the code, a number may mean another stream. `rebound` rewrites plans in memory as if the graph of
now had made them. The stored plans do not change, and the next restart reads them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kstream.batch import BatchPlan
from kstream.checkpoint.input_records import KeptOffsets
from kstream.checkpoint.reader import LogContents

Names = Mapping[int, str | None]
"""The streams of a graph that are planned: number → name, None without a name."""

DROPPED = "dropped:"
TOPICS = "topics:"
INTERVAL = "interval:"
WINDOW = "window:"
OUTPUT = "output:"
"""The beginnings of the words of `recovery.allow`. A stream's name follows; after `interval:` a batch time in ms, after `window:` the id of
a state, after `output:` the name of an output."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The streams of a stored graph, the streams of the graph now, and the pairs that are the same stream."""

    stored: Names
    now: Names
    matched: Mapping[int, int]
    """Stored number → number now."""

    @property
    def vanished(self) -> list[int]:
        """Stored numbers that no stream of the graph now continues."""
        return [number for number in sorted(self.stored) if number not in self.matched]

    @property
    def new(self) -> list[int]:
        """The numbers of streams without stored data."""
        return sorted(set(self.now) - set(self.matched.values()))

    @property
    def unchanged(self) -> bool:
        """Whether every stream has the same number as before."""
        return not self.vanished and not self.new and all(old == new for old, new in self.matched.items())

    def report(self) -> str:
        """Return a text with one line per stream: continued, new, or vanished."""
        matched = sorted(self.matched.items(), key=lambda pair: pair[1])
        lines = [f"  {_call(self.now[new], new)}: continues, {self._from(old, new)}" for old, new in matched]
        lines += [f"  {_call(self.now[number], number)}: is new, and begins as at a first start" for number in self.new]
        lines += [f"  {_call(self.stored[number], number)}: is not in the job; its offsets are dropped" for number in self.vanished]
        return "\n".join(lines)

    def _from(self, old: int, new: int) -> str:
        """Return how a stream was bound, for the report."""
        how = "by name" if self.stored[old] is not None else "by position"
        return how if old == new else f"{how} (it was stream {old})"


def bind(stored: Names, now: Names) -> Binding:
    """Bind named streams by name, and a stored stream without a name by position, if that position is free.

    If an unnamed stream gets a name later, it keeps its offsets. A stream that loses its name vanishes, because offsets that were stored
    under a name only go to that name.

    Args:
        stored: the streams of the stored graph.
        now: the streams of the graph that starts.
    """
    by_name = {name: number for number, name in now.items() if name is not None}
    matched = {old: by_name[name] for old, name in stored.items() if name is not None and name in by_name}
    for old, name in stored.items():
        if name is None and old in now and old not in matched.values():
            matched[old] = old
    return Binding(dict(stored), dict(now), matched)


def mappings(plans: Iterable[BatchPlan], now: Names) -> dict[int, Mapping[int, int]]:
    """Return, per epoch, the numbers that the streams of that driver's graph have now (number then → number now).

    An old graph is followed from driver to driver, because each driver has bound the stored streams to its own. So a stream that first got
    a name, and later another position, is recognised in its oldest plans, too.
    """
    graphs = {plan.epoch: plan.streams for plan in plans if not plan.void}
    epochs = sorted(graphs)
    steps = [*(graphs[epoch] for epoch in epochs), now]
    found: dict[int, Mapping[int, int]] = {}
    for at, epoch in enumerate(epochs):
        mapping = {number: number for number in graphs[epoch]}
        for before, after in zip(steps[at:], steps[at + 1 :], strict=False):
            step = bind(before, after).matched
            mapping = {old: step[number] for old, number in mapping.items() if number in step}
        found[epoch] = mapping
    return found


def renumbered(plan: BatchPlan, mapping: Mapping[int, int], now: Names) -> BatchPlan:
    """Return the plan with the stream numbers and names of now, without the data of streams that are gone.

    Args:
        plan: the stored plan.
        mapping: number in the plan → number now.
        now: the streams of the graph that starts.
    """
    inputs = {mapping[old]: data for old, data in plan.inputs.items() if old in mapping}
    records = {mapping[old]: count for old, count in plan.num_records.items() if old in mapping}
    names = {number: name for number, name in now.items() if number in inputs and name is not None}
    return replace(plan, inputs=inputs, num_records=records, names=names)


def rebound(contents: LogContents, now: Names) -> LogContents:
    """Return the log with stream numbers and names as if the graph of now had made all plans."""
    followed = mappings(contents.known_plans, now)
    plans = {time: renumbered(plan, followed.get(plan.epoch, {}), now) for time, plan in contents.plans.items()}
    settled = tuple(
        replace(interval, plans=tuple(renumbered(plan, followed.get(plan.epoch, {}), now) for plan in interval.plans))
        for interval in contents.settled
    )
    kept = _rebound_kept(contents.kept_offsets, _newest(contents), now)
    return replace(contents, plans=plans, settled=settled, kept_offsets=kept, numbers=followed)


def _rebound_kept(kept: KeptOffsets | None, newest: BatchPlan | None, now: Names) -> KeptOffsets | None:
    """Return the kept offsets with the stream numbers of now, without those of streams that are gone."""
    if kept is None:
        return None
    mapping = _kept_mapping(kept, newest, now)
    inputs = {mapping[number]: data for number, data in kept.inputs.items() if number in mapping}
    return replace(kept, streams=dict(now), inputs=inputs)


def _kept_mapping(kept: KeptOffsets, newest: BatchPlan | None, now: Names) -> Mapping[int, int]:
    """Map the streams of the record to the streams of now: kept offsets go where the newest plan of their stream goes.

    The driver of the record may have died before its first plan. Then the newest plan is of an older graph, and a name that only the
    record has binds nothing: the next graph may have another name, or none.
    """
    if newest is None:
        return bind(kept.streams, now).matched
    planned = newest.streams
    if newest.epoch < kept.epoch:  # the driver of the record has bound the streams of this plan to its own
        in_plan = {number: stored for stored, number in bind(planned, kept.streams).matched.items()}
    else:
        in_plan = bind(kept.streams, planned).matched
    to_now = bind(planned, now).matched
    return {number: to_now[stored] for number, stored in in_plan.items() if stored in to_now}


def binding_of(contents: LogContents, now: Names) -> Binding:
    """Bind the streams of the newest plan to the streams of now. Tombstones do not count; without a plan there are no stored streams."""
    newest = _newest(contents)
    return bind({} if newest is None else newest.streams, now)


def _newest(contents: LogContents) -> BatchPlan | None:
    """Return the newest plan that is no tombstone; None if there is none."""
    return max((plan for plan in contents.plans.values() if not plan.void), key=lambda plan: plan.time, default=None)


def called(names: Names, number: int) -> str:
    """Return the word for a stream in the setting `recovery.allow`: its name, else its number."""
    return names[number] or str(number)


def not_allowed(binding: Binding, allow: Collection[str]) -> list[str]:
    """Return the vanished streams that `recovery.allow` does not permit to drop: their names, as in the words `dropped:NAME`.

    Args:
        binding: of the stored streams.
        allow: the words of `recovery.allow`.
    """
    vanished = [called(binding.stored, number) for number in binding.vanished]
    return [name for name in vanished if DROPPED + name not in allow]


def places(streams: Names, texts: Mapping[int, str]) -> str:
    """Return a text with one line per stream that has a place in its source, for the log of a start; "" if none has.

    Args:
        streams: the streams of the graph that starts.
        texts: the place of each stream, by number; "" for a stream without offsets.
    """
    return "".join(f"\n  {_call(streams[number], number)}: {text}" for number, text in sorted(texts.items()) if text)


def _call(name: str | None, number: int) -> str:
    """Return a stream's name or number for the report."""
    return f"stream {number}" if name is None else f"stream {name!r}"
