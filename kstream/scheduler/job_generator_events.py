"""What is posted to the JobGenerator's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kstream.batch import Batch
from kstream.batch_time import Time
from kstream.loop import Event


@dataclass(frozen=True, slots=True)
class GenerateJobs:
    time: Time


@dataclass(frozen=True, slots=True)
class ClearMetadata:
    time: Time


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything posted before it has been handled."""

    reached: Event


@dataclass(slots=True)
class Resume:
    """Submit what an earlier driver left pending and plan what it missed; `ended` is set when that is done.

    `failures`: how often batches have failed, by time.
    """

    pending: Sequence[Batch]
    failures: Mapping[Time, int]
    missed: Sequence[Time]
    ended: Event


JobGeneratorEvent: TypeAlias = GenerateJobs | ClearMetadata | Drained | Resume
