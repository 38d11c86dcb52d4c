"""One request of a batch is held or dropped, or its answer; then the batch is tried again, in the same driver or by a new one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kstream_kafka.sink.kafka_output import KafkaOutput

from integration.kafka_handle import KafkaHandle
from integration.kafka_proxy import Action, Api, KafkaProxy, Rule
from integration.sink_faults.batches import Attempt, AttemptFailedError, AttemptProcess, Run, SinkJob, in_this_process, new_job
from integration.sink_faults.verdict import breaches_of, committed
from kstream.errors import KStreamError

MOST_TRIES = 3
"""So often a batch is tried again after its first try, at most. A request that comes late may end one of them."""
SOON_S = 1.0
"""How long a request is held if the client is to wait for it."""
LATE_S = 120.0
FIRES_S = 20.0

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
"""Of the broker. By default it looks only every 10 s for transactions whose time-out is over."""

PLACES = {
    "id": (Api.INIT_PRODUCER_ID, 2),
    "partitions": (Api.ADD_PARTITIONS_TO_TXN, 2),
    "records": (Api.PRODUCE, 3),
    "receipt": (Api.PRODUCE, 4),
    "commit": (Api.END_TXN, 2),
}
"""A name for the request of the second partition of a batch that is met: its API, and its number in the batch.

The client adds the partitions of topic and receipts to its transaction in one request: it has both in its queue when it asks.
"""
PLACES_OF_A_START = {"fence": (Api.PRODUCE, 1), "id at a start": (Api.INIT_PRODUCER_ID, 2)}
"""The same for requests that a new driver makes before its first batch."""


class Client(Enum):
    """What becomes of the client whose request is met."""

    RETURNS = "comes back"
    CUT_OFF = "is cut off"
    KILLED = "is killed"


class Until(Enum):
    """Until when a request is held."""

    SOON = "for a second"
    FAILED = "until the try has failed"
    PREPARED = "until the next try is prepared"
    WRITTEN = "until the batch is written"


@dataclass(frozen=True)
class Fault:
    """What happens in the first try of a batch, and who tries it again.

    Attributes:
        place: the request, see PLACES and PLACES_OF_A_START.
        action: what the proxy does.
        client: what becomes of the client.
        until: when a held request goes on.
        by_new_driver: whether a new driver tries the batch again.
    """

    place: str
    action: Action
    client: Client
    until: Until = Until.SOON
    by_new_driver: bool = False

    def __str__(self) -> str:
        held = f" {self.until.value}" if self.action is Action.HOLD_REQUEST else ""
        again = "new driver" if self.by_new_driver else "same driver"
        return f"{self.place}: {self.action.value}{held}, client {self.client.value}, {again}"

    def rule(self) -> Rule:
        api, nth = {**PLACES, **PLACES_OF_A_START}[self.place]
        seconds = SOON_S if self.until is Until.SOON else LATE_S
        is_drop = self.action is not Action.HOLD_REQUEST
        return Rule(api, self.action, nth, seconds, cuts=is_drop and self.client is not Client.RETURNS)


@dataclass
class Finding:
    """What came of a scenario.

    Attributes:
        breaches: what is wrong; empty if each record is there once and no transaction is open.
        errors: those of the tries that failed, in order.
        seconds: how long it took.
    """

    breaches: list[str]
    errors: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def note(self, attempt: Callable[[], object]) -> bool:
        """Try a batch. Return whether it is written; if not, note the error."""
        try:
            attempt()
        except KStreamError as e:
            self.errors.append(f"{type(e).__name__}: {e}")
            return False
        return True


def all_faults() -> Iterator[Fault]:
    """Each request, with each thing that may become of it and of its client, tried again by each driver."""
    for place in PLACES:
        for by_new_driver in (False, True):
            for until in Until:
                yield Fault(place, Action.HOLD_REQUEST, Client.RETURNS, until, by_new_driver)
            for until in (Until.PREPARED, Until.WRITTEN):
                yield Fault(place, Action.HOLD_REQUEST, Client.KILLED, until, by_new_driver)
            for action in (Action.DROP_REQUEST, Action.DROP_ANSWER):
                for client in Client:
                    yield Fault(place, action, client, by_new_driver=by_new_driver)
    yield from _faults_of_a_start()


def _faults_of_a_start() -> Iterator[Fault]:
    """The same for PLACES_OF_A_START. The driver waits a minute for its fence, so few faults make it fail."""
    for by_new_driver in (False, True):
        for place in PLACES_OF_A_START:
            yield Fault(place, Action.HOLD_REQUEST, Client.RETURNS, Until.SOON, by_new_driver)
            for action in (Action.DROP_REQUEST, Action.DROP_ANSWER):
                yield Fault(place, action, Client.RETURNS, by_new_driver=by_new_driver)
        for until in (Until.FAILED, Until.PREPARED, Until.WRITTEN):
            yield Fault("id at a start", Action.HOLD_REQUEST, Client.RETURNS, until, by_new_driver)
        yield Fault("id at a start", Action.DROP_ANSWER, Client.CUT_OFF, by_new_driver=by_new_driver)
    for until in (Until.PREPARED, Until.WRITTEN):
        yield Fault("fence", Action.HOLD_REQUEST, Client.RETURNS, until, by_new_driver=True)


def killed_by(rule: Rule) -> Run:
    """Return what runs each attempt in a process of its own, and kills it when the rule has fired."""

    def run(attempt: Attempt) -> list[Any]:
        process = AttemptProcess(attempt)
        while not rule.fired.wait(0.02):
            if process.is_over():
                return process.result()
        process.kill()
        raise AttemptFailedError("the attempt was killed")

    return run


class FaultyJob:
    """A job that writes through the proxy, and meets one fault after the other. After a breach another job goes on. One thread."""

    def __init__(self, kafka: KafkaHandle, proxy: KafkaProxy) -> None:
        """
        Args:
            kafka: the broker without the proxy.
            proxy: the proxy before it.
        """
        self._kafka = kafka
        self._proxy = proxy
        self._job: SinkJob | None = None
        self._output: KafkaOutput | None = None
        self._number = 0
        """Of the newest batch."""

    def meet(self, fault: Fault) -> Finding:
        """Write a batch with a fault, and one more. Return what came of them."""
        began = time.monotonic()
        job, output = self._ready()
        if fault.place in PLACES_OF_A_START:
            output = self._output = job.driver()
        rule, finding, self._number = self._proxy.add(fault.rule()), Finding([]), self._number + 2

        def let_go(when: Until) -> None:
            if fault.until is when and fault.action is Action.HOLD_REQUEST:
                rule.release()
                rule.answered.wait(FIRES_S)

        run = killed_by(rule) if fault.client is Client.KILLED else in_this_process
        finding.note(lambda: job.write(output, self._number - 1, run))
        self._proxy.mend()
        if not rule.fired.is_set():
            self._proxy.withdraw(rule)  # a later request would meet it, and cut off the clients of a batch without a fault
            finding.breaches.append("the fault was not met")
        let_go(Until.FAILED)
        if fault.by_new_driver:
            output = self._output = job.driver()
        self._try_again(finding, job, output, self._number - 1, lambda: let_go(Until.PREPARED))
        let_go(Until.WRITTEN)
        if not finding.note(lambda: job.write(output, self._number)):
            self._try_again(finding, job, output, self._number)
        finding.breaches += breaches_of(self._kafka, job)
        finding.seconds = time.monotonic() - began
        if finding.breaches:
            self._job = None
        return finding

    def _ready(self) -> tuple[SinkJob, KafkaOutput]:
        """Return the job and the output of its driver, which has taken over and written a batch."""
        if self._job is None or self._output is None:
            self._job = new_job(self._kafka, self._proxy.bootstrap)
            self._output, self._number = self._job.driver(), 1
            self._job.write(self._output, 1)
            self._job.complete(self._output, 1)
        return self._job, self._output

    def _try_again(
        self, finding: Finding, job: SinkJob, output: KafkaOutput, number: int, on_prepared: Callable[[], object] = lambda: None
    ) -> None:
        """Try a batch until it is written, and store its completion."""
        for _ in range(MOST_TRIES):
            if finding.note(lambda: job.write(output, number, is_first_try=False, on_prepared=on_prepared)):
                return job.complete(output, number)
        return finding.breaches.append(f"batch {number} was not written in {MOST_TRIES} more tries")


def repeats_of_at_least_once(kafka: KafkaHandle, proxy: KafkaProxy) -> int:
    """Write a batch at least once, twice: the process of the first try is killed before it has the answer to a Produce.

    Return how many records are there a second time. Without any the scenarios could not tell a sink that writes twice.
    """
    job = new_job(kafka, proxy.bootstrap)
    rule = proxy.add(Rule(Api.PRODUCE, Action.DROP_ANSWER, nth=2, cuts=True))
    with suppress(AttemptFailedError):
        job.write_at_least_once(1, killed_by(rule))
    proxy.mend()
    job.write_at_least_once(1)
    found = committed(kafka, job.topic)
    return found.total() - len(found)
