"""An attempt is suspended by SIGSTOP. Another driver, or another attempt of the same driver, writes its partition. Then it goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from integration.kafka_handle import KafkaHandle
from integration.kafka_proxy import Action, Api, KafkaProxy, Rule
from integration.sink_faults.batches import (
    Attempt,
    AttemptFailedError,
    AttemptProcess,
    SinkJob,
    SuspendedAt,
    in_its_own_process,
    new_job,
)
from integration.sink_faults.verdict import breaches_of

FENCED = "FencedError"
"""Begins the error of an attempt whose driver may write no more."""
FIRES_S = 20.0


def zombie(kafka: KafkaHandle, where: SuspendedAt) -> list[str]:
    """Return what is wrong after an attempt of a driver is suspended, a new driver writes the batch, and the attempt goes on.

    Args:
        kafka: the broker.
        where: where the attempt suspends itself.
    """
    job = new_job(kafka, kafka.bootstrap, num_partitions=2)

    return _outlived(kafka, job, lambda attempt: _suspended(attempt, where), lambda: None)


def zombie_with_its_commit_under_way(kafka: KafkaHandle, proxy: KafkaProxy) -> list[str]:
    """Return what is wrong after the same, when the commit is on its way to the broker, and comes once the new driver has written."""
    job = new_job(kafka, proxy.bootstrap, num_partitions=2)
    rule: Rule | None = None

    def suspended(attempt: Attempt) -> AttemptProcess:
        nonlocal rule
        rule = proxy.add(Rule(Api.END_TXN, Action.HOLD_REQUEST))
        process = AttemptProcess(attempt)
        if not rule.fired.wait(FIRES_S):
            raise AttemptFailedError("the attempt did not come to its commit")
        process.send(signal.SIGSTOP)
        return process

    def let_commit_come() -> None:
        assert rule is not None
        rule.release()
        rule.answered.wait(FIRES_S)

    return _outlived(kafka, job, suspended, let_commit_come)


def _suspended(attempt: Attempt, where: SuspendedAt) -> AttemptProcess:
    process = AttemptProcess(replace(attempt, suspended_at=where))
    process.wait_suspended()
    return process


def _outlived(
    kafka: KafkaHandle, job: SinkJob, suspended: Callable[[Attempt], AttemptProcess], on_written: Callable[[], None]
) -> list[str]:
    """Return what is wrong after a driver's attempt at partition 0 is suspended, and goes on once a new driver has written the batch."""
    first = job.driver()
    job.write(first, 1)
    job.complete(first, 1)
    zombies: list[AttemptProcess] = []

    def run(attempt: Attempt) -> list[Any]:
        zombies.append(suspended(attempt))
        raise AttemptFailedError("the driver is away")

    breaches: list[str] = []
    try:
        job.write(first, 2, run)
    except AttemptFailedError as e:
        if not zombies:
            return [str(e)]
    second = job.driver()
    job.write(second, 2, is_first_try=False)
    job.complete(second, 2)
    on_written()
    zombies[0].send(signal.SIGCONT)
    try:
        zombies[0].result()
        breaches.append("the attempt of the earlier driver was taken for good")
    except AttemptFailedError as e:
        if not str(e).startswith(FENCED):
            breaches.append(f"the attempt of the earlier driver does not say that it is fenced: {e}")
    job.write(second, 3)
    return breaches + breaches_of(kafka, job)


def speculation(kafka: KafkaHandle, where: SuspendedAt) -> list[str]:
    """Return what is wrong after an attempt is suspended, a copy of it writes the partition, and the first one goes on.

    Both attempts must tell the same receipt: so Spark may take either of them.

    Args:
        kafka: the broker.
        where: where the first attempt suspends itself.
    """
    job = new_job(kafka, kafka.bootstrap, num_partitions=2)
    output = job.driver()
    job.write(output, 1)
    job.complete(output, 1)
    breaches: list[str] = []

    def twice(attempt: Attempt) -> list[Any]:
        first = _suspended(attempt, where)
        by_copy = in_its_own_process(attempt.again())
        first.send(signal.SIGCONT)
        try:
            by_first = first.result()
        except AttemptFailedError as e:
            breaches.append(f"the first attempt has failed, and the receipt is there: {e}")
        else:
            if by_first != by_copy:
                breaches.append(f"the attempts tell different receipts: {by_first} and {by_copy}")
        return by_copy

    job.write(output, 2, twice)
    job.complete(output, 2)
    job.write(output, 3)
    return breaches + breaches_of(kafka, job)


def copies_at_once(kafka: KafkaHandle) -> list[str]:
    """Return what is wrong after two attempts write each partition at once, and none is suspended. Both must succeed."""
    job = new_job(kafka, kafka.bootstrap, num_partitions=2)
    output = job.driver()
    job.write(output, 1)
    job.complete(output, 1)

    def both(attempt: Attempt) -> list[Any]:
        processes = [AttemptProcess(one) for one in (attempt, attempt.again())]
        results: list[list[Any]] = []
        for process in processes:
            try:
                results.append(process.result())
            except AttemptFailedError as e:
                breaches.append(f"an attempt has failed: {e}")
        if not results:
            raise AttemptFailedError("both attempts have failed")
        return results[0]

    breaches: list[str] = []
    job.write(output, 2, both)
    job.complete(output, 2)
    job.write(output, 3)
    return breaches + breaches_of(kafka, job)
