"""The events that are posted to the JobGenerator's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kstream.batch import Batch
from kstream.batch_time import Time
from kstream.loop import Event


@dataclass(frozen=True, slots=True)
class GenerateJobs:
    """A tick of the timer: the batch of this time is due."""

    time: Time


@dataclass(frozen=True, slots=True)
class ClearMetadata:
    """The batch of this time has ended, or the generator has just started: clean up, and see whether the inputs are exhausted."""

    time: Time


@dataclass(frozen=True, slots=True)
class Drained:
    """A mark in the queue: `reached` is set once all events posted before it are handled."""

    reached: Event


@dataclass(slots=True)
class Resume:
    """The work of a restart before its first tick: run the pending batches again, and plan the missed ones.

    Attributes:
        pending: the pending batches of earlier drivers, oldest first.
        failures: how often each batch has failed, by batch time.
        missed: the missed batch times to plan, oldest first.
        ended: set when the work is done, also after an error.
    """

    pending: Sequence[Batch]
    failures: Mapping[Time, int]
    missed: Sequence[Time]
    ended: Event


JobGeneratorEvent: TypeAlias = GenerateJobs | ClearMetadata | Drained | Resume
