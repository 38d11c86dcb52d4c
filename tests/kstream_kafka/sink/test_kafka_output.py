"""Each record is in Kafka once, whatever becomes of drivers and attempts. On FakeKafka; partitions run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import (
    BrokerUnreachableError,
    CommitUnknownError,
    KafkaConfigError,
    KafkaError,
    ProducerFencedError,
    ReceiptsLostError,
)
from kstream_kafka.sink import partition_writer, receipts, spool
from kstream_kafka.sink.kafka_output import KafkaOutput, figures_of, kafka_output
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import FENCES, Fence, encode_fence, fence_key
from pyspark import TaskContext

from kstream.batch import OutputFigures
from kstream.batch_time import Time
from kstream.errors import ConfigurationError, FencedError, OutputChangedError
from kstream.output import OutputBatch, Writer

from .fake_kafka import Entry, FakeKafka, FakeReader, FakeTransaction
from .jobs import RECEIPTS, TOTALS, Jobs, Partitions

BROKERS = {"bootstrap.servers": "fake:1"}


class SecondAttempt:
    """Stands for the context of a task that Spark runs a second time."""

    def attemptNumber(self) -> int:
        return 1


def test_records_and_receipts_are_there_and_the_outcome_names_the_batch(jobs: Jobs) -> None:
    output = jobs.driver()
    stored = jobs.write(output, 1000, Partitions([1, 2], [3]))
    assert jobs.numbers() == [1, 2, 3]
    assert (stored["batch"], stored["partitions"], stored["records"], stored["topicId"]) == (1000, 2, 3, "id 2")
    output.committed(Time(1000))
    assert jobs.write(output, 2000, Partitions([4], []))["records"] == 1 and jobs.numbers() == [1, 2, 3, 4]


def test_a_batch_that_runs_again_writes_the_partitions_that_have_no_receipt(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    rdd = Partitions([1, 2], [3])
    assert jobs.write(jobs.driver(), 1000, rdd, is_first_try=False)["records"] == 3
    assert rdd.ran == [0] and jobs.numbers() == [1, 2, 3]


def test_where_an_input_reports_all_partitions_run_and_the_missing_ones_are_written(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    rdd = Partitions([1, 2], [3])
    assert jobs.write(jobs.driver(), 1000, rdd, is_first_try=False, partitions=None)["records"] == 3
    assert rdd.ran == [0, 1] and jobs.numbers() == [1, 2, 3]


def test_a_batch_that_a_later_one_follows_writes_nothing(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    jobs.write(output, 2000, Partitions([2]))
    jobs.write(jobs.driver(), 1000, Partitions([1]), is_first_try=False, partitions=None)
    assert jobs.numbers() == [1, 2]


def test_an_error_of_the_users_code_begins_no_transaction(jobs: Jobs) -> None:
    class Fails(Partitions):
        def records(self, number: int) -> Iterator[Encoded]:
            yield from super().records(number)
            raise ValueError("of the user")

    output = jobs.driver()
    jobs.kafka.on["begin"] = lambda: pytest.fail("a transaction began")
    with pytest.raises(ValueError, match="of the user"):
        jobs.write(output, 1000, Fails([1, 2]))
    assert jobs.kafka.values(TOTALS) == [] and not jobs.kafka.open
    jobs.kafka.on.clear()
    jobs.write(output, 1000, Partitions([1, 2]), is_first_try=False)
    assert jobs.numbers() == [1, 2]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_without_an_answer_is_looked_up_by_the_next_try(jobs: Jobs, is_committed: bool) -> None:
    output = jobs.driver()

    def no_answer() -> None:
        raise CommitUnknownError("id", "timeout")  # the client tells no more

    jobs.kafka.on["committed" if is_committed else "commit"] = no_answer
    with pytest.raises(CommitUnknownError):
        jobs.write(output, 1000, Partitions([1, 2]))
    again = Partitions([1, 2])
    assert jobs.write(output, 1000, again, is_first_try=False)["records"] == 2
    assert jobs.numbers() == [1, 2] and again.ran == ([] if is_committed else [0])


def test_a_first_attempt_that_is_late_finds_what_another_one_has_written(jobs: Jobs) -> None:
    """A speculative copy may have written while the first attempt was suspended before it had its transactional id."""
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    batch = OutputBatch(Time(2000), jobs.plans.setdefault(2000, "plan of 2000"), True)
    rdd: Any = Partitions([2])
    output.prepare(batch, rdd)
    output.run(batch, rdd, None)
    output._ends = dict(output._begins)  # as they were when the first attempt was sent out
    output.run(batch, rdd, None)
    assert jobs.numbers() == [1, 2]


def test_an_attempt_after_one_that_died_with_its_receipt_written_does_not_wait_for_its_transaction(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of the first one ends when its id is taken. Its time-out is a minute."""
    output = jobs.driver()
    rdd: Any = Partitions([1])
    batch = OutputBatch(Time(1000), jobs.plans.setdefault(1000, "plan of 1000"), True)
    output.prepare(batch, rdd)

    def dies() -> None:
        raise SystemExit

    jobs.kafka.on["commit"] = dies
    with monkeypatch.context() as dead, pytest.raises(SystemExit):
        dead.setattr(FakeTransaction, "close", lambda _self: None)
        output.run(batch, rdd, None)
    assert jobs.kafka.open
    monkeypatch.setattr(TaskContext, "get", lambda: SecondAttempt())
    output.run(batch, rdd, None)
    assert jobs.numbers() == [1] and not jobs.kafka.open


def test_an_attempt_that_has_lost_its_id_takes_the_verdict_of_the_other_one(jobs: Jobs) -> None:
    output = jobs.driver()
    rdd: Any = Partitions([1])
    batch = OutputBatch(Time(1000), jobs.plans.setdefault(1000, "plan of 1000"), True)
    output.prepare(batch, rdd)
    jobs.kafka.on["begin"] = lambda: output.run(batch, rdd, None)  # the other attempt, from its beginning to its end
    output.run(batch, rdd, None)
    assert jobs.numbers() == [1]


def run_of(jobs: Jobs, output: KafkaOutput, time_ms: int, rdd: Any, is_first_try: bool = True) -> OutputFigures:
    """What the output has measured of a try of a batch, without the time of its commits."""
    batch = OutputBatch(Time(time_ms), jobs.plans.setdefault(time_ms, f"plan of {time_ms}"), is_first_try)
    figures = output.run(batch, rdd, output.prepare(batch, rdd))
    assert (figures.commit_p99_ms is None) == (figures.transactions == 0)
    return replace(figures, commit_p99_ms=None)


def test_a_try_tells_its_transactions_and_their_bytes(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    output = jobs.driver()
    assert run_of(jobs, output, 1000, Partitions([1, 2], [], [30])) == OutputFigures(2, written_bytes=4, spooled_bytes=0, fenced_attempts=0)
    assert run_of(jobs, output, 2000, Partitions([], [])) == OutputFigures(0, 0, 0, 0)
    monkeypatch.setattr(partition_writer, "Spool", lambda: spool.Spool(held_bytes=1))
    spooled = run_of(jobs, output, 3000, Partitions([1, 2])).spooled_bytes
    assert spooled is not None and spooled > 2


def test_a_try_does_not_tell_what_an_earlier_one_has_written(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    again = run_of(jobs, jobs.driver(), 1000, Partitions([1, 2], [3]), is_first_try=False)
    assert (again.transactions, again.written_bytes) == (1, 2)


def test_an_attempt_that_has_lost_its_id_is_told_and_has_written_nothing(jobs: Jobs) -> None:
    output, rdd = jobs.driver(), Partitions([1])
    batch = OutputBatch(Time(1000), jobs.plans.setdefault(1000, "plan of 1000"), True)
    jobs.kafka.on["begin"] = lambda: output.run(batch, cast(Any, rdd), None)
    assert run_of(jobs, output, 1000, rdd) == OutputFigures(0, 0, 0, fenced_attempts=1)


def test_of_the_times_of_commits_the_99th_percentile_is_told() -> None:
    def p99(*times: int) -> int | None:
        return figures_of(OutputFigures(1, commit_p99_ms=time) for time in times).commit_p99_ms

    assert (p99(), p99(7), p99(3, 9, 5)) == (None, 7, 9)
    assert (p99(*range(1, 101)), p99(*range(1, 201))) == (99, 198)


def test_an_attempt_that_has_lost_its_id_to_one_that_ends_fails(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "WAIT_S", 0.0)
    moments = iter(range(0, 1000, 30))
    monkeypatch.setattr(partition_writer, "monotonic", lambda: next(moments))
    output = jobs.driver()
    jobs.kafka.on["begin"] = lambda: jobs.kafka.transaction({}, "kstream-job-kafka totals-0", 1).open()
    with pytest.raises(ProducerFencedError, match="Another producer has taken the transactional id"):
        jobs.write(output, 1000, Partitions([1]))
    assert jobs.numbers() == []


def test_a_task_of_an_earlier_driver_writes_nothing_once_a_later_one_has_taken_over(jobs: Jobs) -> None:
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1]))
    jobs.write(jobs.driver(), 2000, Partitions([2]), is_first_try=False)
    with pytest.raises(FencedError, match=r"another driver writes \(epoch 2, this one has 1\)"):
        jobs.write(first, 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


@pytest.mark.parametrize("step", ["begin", "flush", "commit"])
def test_a_driver_that_takes_over_in_the_middle_of_a_transaction_ends_it(jobs: Jobs, step: str) -> None:
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1]))
    jobs.plans[2000] = "plan of 2000"
    jobs.kafka.on[step] = lambda: jobs.write(jobs.driver(), 2000, Partitions([2]), is_first_try=False)
    with pytest.raises(FencedError):
        jobs.write(first, 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


def test_a_driver_that_is_late_with_its_fence_stops_and_does_not_disturb_the_later_one(jobs: Jobs) -> None:
    early, later = jobs.driver(), list[KafkaOutput]()

    def overtake() -> None:
        later.append(jobs.driver())
        jobs.write(later[0], 1000, Partitions([1]))

    jobs.kafka.on["fence"] = overtake
    with pytest.raises(FencedError):
        jobs.write(early, 1000, Partitions([1]))
    jobs.write(later[0], 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


@pytest.mark.parametrize("comes", ["at once", "later"])
def test_a_fence_that_a_retry_of_the_client_has_written_twice_says_the_same(jobs: Jobs, comes: str) -> None:
    """Its producer is not idempotent: that would wait for an id."""

    def repeat() -> None:
        fence = jobs.kafka.topics[RECEIPTS][1][0][-1]
        jobs.kafka.append(RECEIPTS, 0, fence.its_key, fence.its_value)

    output = jobs.driver(audit=False)
    if comes == "at once":
        jobs.kafka.on["fence stored"] = repeat
    jobs.write(output, 1000, Partitions([1]))
    if comes == "later":
        repeat()
    jobs.write(output, 2000, Partitions([2]))
    assert len(jobs.kafka.committed(RECEIPTS, 0)) == 2
    jobs.write(jobs.driver(audit=False), 3000, Partitions([3]), is_first_try=False)
    assert jobs.numbers() == [1, 2, 3]
    assert jobs.kafka.producing["enable.idempotence"] == "false"


def test_two_copies_of_a_checkpoint_are_refused(jobs: Jobs) -> None:
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1]))
    copy = jobs.driver(nonce="of the copy", epoch=1)
    with pytest.raises(OutputChangedError, match="another copy of it"):
        jobs.write(copy, 2000, Partitions([2]))
    jobs.write(first, 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


def test_what_a_copy_has_written_is_found_though_a_driver_of_this_checkpoint_has_followed_it(jobs: Jobs) -> None:
    """That driver has written its fence, and was refused or killed then."""
    jobs.write(jobs.driver(), 1000, Partitions([1]))
    jobs.write(jobs.driver(nonce="of the copy", epoch=2), 2000, Partitions([2]), is_first_try=False)
    jobs.nonces = {1: "nonce 1", 2: "nonce 2", 3: "nonce 3"}
    followed = Fence(3, "nonce 3", 16)
    jobs.kafka.append(RECEIPTS, FENCES, fence_key("job", "kafka totals", followed), encode_fence(followed))
    with pytest.raises(OutputChangedError, match=r"a driver has written that is not one of this checkpoint \(epoch 2\)"):
        jobs.write(jobs.driver(), 3000, Partitions([2]), is_first_try=False)
    assert jobs.numbers() == [1, 2]


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(jobs: Jobs) -> None:
    first = jobs.driver()
    stored = jobs.write(first, 1000, Partitions([1]))
    jobs.write(first, 2000, Partitions([2]))
    jobs.plans = {1000: "plan of 1000", 2000: "planned anew"}
    backup = jobs.driver(stored, nonce="of the backup", epoch=2)
    with pytest.raises(OutputChangedError, match="older than what was written"):
        jobs.write(backup, 1500, Partitions([2, 3]), is_first_try=False)
    jobs.plans[3000] = "plan of 3000"
    jobs.write(first, 3000, Partitions([3]))
    assert jobs.numbers() == [1, 2, 3], "the right driver goes on"


def test_a_half_written_batch_that_is_divided_otherwise_is_refused(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    with pytest.raises(OutputChangedError, match=r"half-written, divided into 2 partitions, of which \[1\] are written, and has 3 now"):
        jobs.write(jobs.driver(), 1000, Partitions([1], [2], [3]), is_first_try=False)
    assert jobs.numbers() == [3]


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (lambda kafka: kafka.topics.pop(RECEIPTS), "topic kstream-receipts is gone"),
        (lambda kafka: kafka.create(RECEIPTS, 17), "topic kstream-receipts was deleted and made anew"),
        (lambda kafka: kafka.topics[RECEIPTS][1][0].clear(), "topic kstream-receipts has lost its fence"),
        (lambda kafka: lose_records(kafka.topics[RECEIPTS][1][1:]), "there is no receipt of its partition 0"),
    ],
)
def test_receipts_that_are_gone_are_never_taken_for_not_written(jobs: Jobs, lose: Callable[[FakeKafka], object], words: str) -> None:
    stored = jobs.write(jobs.driver(), 1000, Partitions([1]))
    lose(jobs.kafka)
    for _ in range(2):
        with pytest.raises(ReceiptsLostError, match=words):
            jobs.write(jobs.driver(stored), 2000, Partitions([2]), is_first_try=False)
    assert jobs.numbers() == [1]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_gone_is_seen_by_the_next_try_of_a_driver_that_lives(jobs: Jobs, is_made_anew: bool) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    jobs.kafka.topics.pop(RECEIPTS)
    if is_made_anew:
        jobs.kafka.create(RECEIPTS, 17)
        jobs.kafka.append(RECEIPTS, 0, b"of another job", b"{}")  # so the offset behind the fence is there
    with pytest.raises(ReceiptsLostError, match="was deleted and made anew" if is_made_anew else "is gone"):
        jobs.write(output, 2000, Partitions([2]), is_first_try=False)
    assert jobs.numbers() == [1]


def test_a_task_writes_nothing_beside_a_topic_that_was_made_anew(jobs: Jobs) -> None:
    """Its receipt has an offset that the topic has passed already. So the look for another receipt would find nothing."""
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    jobs.kafka.create(RECEIPTS, 17)
    jobs.kafka.append(RECEIPTS, 0, b"of another job", b"{}")
    with pytest.raises(ReceiptsLostError, match="was deleted and made anew"):
        jobs.write(output, 2000, Partitions([2]))
    assert jobs.numbers() == [1]


def test_a_driver_that_knows_of_no_topic_and_has_a_successor_makes_none(jobs: Jobs) -> None:
    """Its successor may have completed batches in a topic that is gone since."""
    early = jobs.driver()
    jobs.write(jobs.driver(), 1000, Partitions([1]))
    jobs.kafka.topics.pop(RECEIPTS)
    with pytest.raises(FencedError, match=r"another driver writes \(epoch 2, this one has 1\)"):
        jobs.write(early, 1000, Partitions([1]), is_first_try=False)
    assert jobs.numbers() == [1]


def test_a_driver_that_an_old_answer_shows_no_fence_tries_again(jobs: Jobs) -> None:
    """It would take itself for the first driver, and look for receipts from the end of the topic on."""
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    second, fences = jobs.driver(), jobs.kafka.topics[RECEIPTS][1]
    true_log = fences[0]
    fences[0] = []
    jobs.kafka.on["fence"] = lambda: fences.__setitem__(0, true_log)
    with pytest.raises(KafkaError, match="a broker that was away has answered"):
        jobs.write(second, 1000, Partitions([1, 2], [3]), is_first_try=False)
    jobs.write(second, 1000, Partitions([1, 2], [3]), is_first_try=False)
    assert jobs.numbers() == [1, 2, 3]


def test_an_old_answer_does_not_hide_the_fence_of_another_copy_of_the_checkpoint(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1]))
    jobs.write(jobs.driver(nonce="of the copy", epoch=2), 1000, Partitions([1]), is_first_try=False)
    third, fences = jobs.driver(epoch=3), jobs.kafka.topics[RECEIPTS][1]
    true_log = fences[0]
    fences[0] = true_log[:1]
    jobs.kafka.on["fence"] = lambda: fences.__setitem__(0, true_log)
    with pytest.raises(OutputChangedError, match=r"not one of this checkpoint \(epoch 2\)"):
        jobs.write(third, 2000, Partitions([2]))
    assert jobs.numbers() == [1]


def test_a_late_fence_of_an_earlier_driver_has_a_key_of_its_own(jobs: Jobs) -> None:
    """With one key for all, compaction would remove the fence of the later driver."""
    early = jobs.driver()
    jobs.kafka.on["fence"] = lambda: jobs.write(jobs.driver(), 1000, Partitions([1]))
    with pytest.raises(FencedError):
        jobs.write(early, 1000, Partitions([1]))
    assert [entry.its_key for entry in jobs.kafka.committed(RECEIPTS, 0)] == [
        b'["fence","job","kafka totals",2,"nonce 2"]',
        b'["fence","job","kafka totals",1,"nonce 1"]',
    ]


def test_an_earlier_driver_hears_that_it_is_fenced_and_not_that_receipts_are_strange(jobs: Jobs) -> None:
    """A later driver may have written its fence and receipts after this one has read the fences."""
    early = jobs.driver()
    jobs.write(early, 1000, Partitions([1]))
    receipts = early._receipts
    reader: Any = FakeReader(jobs.kafka)
    assert receipts is not None

    def check() -> None:
        raise OutputChangedError("output kafka totals: batch 2000 ms is written there", output="kafka totals")

    with pytest.raises(OutputChangedError, match="batch 2000 ms is written there"):
        receipts.judged(reader, check)
    jobs.write(jobs.driver(), 2000, Partitions([2]), is_first_try=False)
    with pytest.raises(FencedError, match=r"another driver writes \(epoch 2, this one has 1\)"):
        receipts.judged(reader, check)


def test_no_read_of_a_driver_ends_before_its_fence(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was away has not this fence. An old answer hides no receipt then, not from a second try either."""
    asked: list[Any] = []
    read = FakeReader.read

    def noted(self: FakeReader, topic: str, begins: Any, *given: Any) -> Any:
        if FENCES not in begins or len(begins) > 1:
            asked.append((given[3], given[4]))
        return read(self, topic, begins, *given)

    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    second = jobs.driver()
    monkeypatch.setattr(FakeReader, "read", noted)
    monkeypatch.setattr("kstream.sinks.receipt.hashing", lambda: 12345)
    for _ in range(2):
        asked.clear()
        with pytest.raises(OutputChangedError, match="the workers divide keys otherwise now"):
            jobs.write(second, 1000, Partitions([1, 2], [3]), is_first_try=False)
        assert asked[-1] == (True, {place: places_of_fences(jobs, place)[-1] + 1 for place in range(1, 17)})
    assert jobs.numbers() == [3]


def test_a_task_of_an_earlier_driver_finds_the_fence_before_its_receipt_whatever_the_partition_of_the_fences_tells(jobs: Jobs) -> None:
    """A broker that was away may answer for the partition of the fences."""
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1]))
    fences = jobs.kafka.topics[RECEIPTS][1]
    old = list(fences[0])
    jobs.write(jobs.driver(), 2000, Partitions([], [2]), is_first_try=False)
    fences[0] = old
    with pytest.raises(FencedError, match=r"another driver writes \(epoch 2, this one has 1\)"):
        jobs.write(first, 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


def places_of_fences(jobs: Jobs, place: int) -> list[int]:
    """The offsets of the fences in a partition of the topic."""
    return [entry.at for entry in jobs.kafka.topics[RECEIPTS][1][place] if (entry.its_key or b"").startswith(b'["fence"')]


def lose_records(logs: Sequence[Sequence[Entry]]) -> None:
    """Remove the records of logs, not their offsets."""
    for entry in (entry for log in logs for entry in log):
        entry.its_key = b"of nobody"


def test_a_first_try_makes_no_request_on_the_driver_but_the_first_one(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    monkeypatch.setattr("kstream_kafka.sink.kafka_output.TopicReader", lambda _settings: pytest.fail("the driver has read"))
    monkeypatch.setattr("kstream_kafka.sink.audit_topic.KafkaDriverClient", lambda _params: pytest.fail("a client was made"))
    jobs.write(output, 2000, Partitions([2]))
    assert jobs.numbers() == [1, 2]


def test_tasks_look_only_behind_the_receipts_of_the_batch_before(jobs: Jobs) -> None:
    output = jobs.driver()
    for time in (1000, 2000, 3000):
        jobs.write(output, time, Partitions([time], [time + 1]))
    last = {entry.place: entry.at for log in jobs.kafka.topics[RECEIPTS][1][1:] for entry in log if not entry.is_control}
    assert last and {place: at for place, at in output._ends.items() if place in last} == {place: at + 1 for place, at in last.items()}


def reads(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """The reads of tasks, as partition of the topic → first offset."""
    found: list[dict[int, int]] = []
    reader = jobs.kafka.reader({})
    read = reader.read

    def counted(topic: str, begins: Any, *rest: Any) -> Any:
        found.append(dict(begins))
        return read(topic, begins, *rest)

    monkeypatch.setattr(reader, "read", counted)
    monkeypatch.setattr(receipts, "TopicReader", lambda _settings: reader)
    return found


def test_a_task_reads_no_receipts_where_nothing_can_be_before_its_own(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1], [2]))
    found = reads(jobs, monkeypatch)
    for time in (2000, 3000):
        jobs.write(output, time, Partitions([time], [time]))
    assert found == [] and len(jobs.numbers()) == 6


def test_a_task_reads_the_fences_of_others_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1], [2]))
    jobs.kafka.append(RECEIPTS, 0, b"of another output", b"")
    found = reads(jobs, monkeypatch)
    for time in (2000, 3000):
        jobs.write(output, time, Partitions([time], [time]))
    assert len(found) == 1, "of four tasks in this process"


def test_a_task_reads_the_receipts_where_there_is_room_for_another_one(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two offsets are room for a receipt of another attempt, and for the control record behind it."""
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    (place,) = [number for number, log in enumerate(jobs.kafka.topics[RECEIPTS][1][1:], 1) if any(entry.is_control for entry in log)]
    jobs.kafka.append(RECEIPTS, place, b"of another output", b"")
    found = reads(jobs, monkeypatch)
    jobs.write(output, 2000, Partitions([2]))
    assert [begins.keys() for begins in found] == [{place, 0}]


def test_each_transaction_has_a_producer_of_its_own(jobs: Jobs) -> None:
    output = jobs.driver()
    for time in (1000, 2000, 3000):
        jobs.write(output, time, Partitions([time]))
    del jobs.kafka.epochs["kstream-job-kafka totals-probe"]
    assert jobs.kafka.epochs == {"kstream-job-kafka totals-0": 4}, "the driver has taken the id once, each task once"


def test_an_empty_partition_costs_no_transaction_and_is_not_missed_later(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([], [1], []))
    assert jobs.kafka.epochs.pop("kstream-job-kafka totals-1") == 2, "by the driver, and by the task"
    del jobs.kafka.epochs["kstream-job-kafka totals-probe"]
    assert set(jobs.kafka.epochs.values()) == {1}, "by the driver alone"
    stored = jobs.write(output, 2000, Partitions([], [], []))
    assert (stored["batch"], stored["empty"], stored["records"]) == (1000, [0, 2], 0)
    assert jobs.write(jobs.driver(stored), 3000, Partitions([3], [], []))["empty"] == [1, 2]
    assert jobs.numbers() == [1, 3]


def test_the_time_out_of_a_transaction_allows_for_a_slow_connection(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    assert set(jobs.kafka.timeouts) == {60_000}
    monkeypatch.setattr(spool, "SLOW", 1)
    for is_first_try in (True, False):
        jobs.write(output, 2000 if is_first_try else 3000, Partitions(list(range(100, 150))), is_first_try)
        assert jobs.kafka.timeouts[-1] == 150_000
    assert jobs.numbers() == [1, *sorted([*range(100, 150)] * 2)] and not jobs.kafka.open


def test_a_half_written_batch_whose_keys_go_elsewhere_now_is_refused(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python version or PYTHONHASHSEED: keys would be lost and be there twice."""
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    monkeypatch.setattr("kstream.sinks.receipt.hashing", lambda: 12345)
    with pytest.raises(OutputChangedError, match="the workers divide keys otherwise now"):
        jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), is_first_try=False)
    assert jobs.numbers() == [3]


@pytest.mark.parametrize("step", ["begin", "flush", "commit"])
def test_a_task_whose_partition_is_gone_in_the_new_layout_does_not_write_beside_it(jobs: Jobs, step: str) -> None:
    """Nobody takes its transactional id. It sees the fence before it commits, or the new driver sees its receipt."""
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1], [2], [3]))
    jobs.plans[2000] = "plan of 2000"

    second = jobs.driver()

    def take_over() -> None:
        try:
            jobs.write(second, 2000, Partitions([4, 5]), is_first_try=False)
        except (OutputChangedError, BrokerUnreachableError):
            pass

    batch, rdd = OutputBatch(Time(2000), "plan of 2000", True), Partitions([], [], [4, 5])
    given: Any = rdd
    first.prepare(batch, given)
    jobs.kafka.on[step] = take_over
    try:
        first.run(batch, given, [2])
    except FencedError:
        take_over()  # its next try, if the transaction of the task was in its way
    assert jobs.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("partitions", "policy"), [(1, "compact"), (17, "delete")])
def test_a_topic_that_cannot_have_receipts_is_refused(jobs: Jobs, partitions: int, policy: str) -> None:
    jobs.kafka.create(RECEIPTS, partitions)
    jobs.kafka.policies[RECEIPTS] = policy
    with pytest.raises(KafkaConfigError, match="names topic kstream-receipts, which has one partition only or is not compacted"):
        jobs.write(jobs.driver(), 1000, Partitions([1]))
    assert not any(jobs.kafka.topics[RECEIPTS][1]), "no fence is there"


def test_the_read_of_a_restart_passes_over_what_others_have_written_meanwhile(jobs: Jobs) -> None:
    """A partition of the topic in which this output has no receipt is read only once."""
    stored = jobs.write(jobs.driver(), 1000, Partitions([1]))
    for place in range(1, 17):
        for n in range(10):
            jobs.kafka.append(RECEIPTS, place, b'["receipt","other","o",%d]' % n, b"{}")
    again = jobs.write(jobs.driver(stored), 2000, Partitions([2]), is_first_try=False)
    mine = min(stored["receipts"].values())
    assert sorted(again["receipts"].values())[:15] == [12] * 15 and mine == 1, "behind the fences of both drivers"


def test_each_try_of_a_restart_finds_the_receipts_of_the_batch_before(jobs: Jobs) -> None:
    output = jobs.driver(jobs.write(jobs.driver(), 1000, Partitions([1])))

    def no_answer() -> None:
        raise CommitUnknownError("id", "timeout")

    for _ in range(2):
        jobs.kafka.on["commit"] = no_answer
        with pytest.raises(CommitUnknownError):
            jobs.write(output, 2000, Partitions([2]), is_first_try=False)
    jobs.write(output, 2000, Partitions([2]), is_first_try=False)
    assert jobs.numbers() == [1, 2]


def test_an_rdd_that_spark_may_divide_otherwise_is_refused_before_anything_is_written(jobs: Jobs) -> None:
    with pytest.raises(ConfigurationError, match="because of a repartition behind a shuffle"):
        jobs.write(jobs.driver(), 1000, Partitions([1], level="INDETERMINATE"))
    assert jobs.kafka.topics.keys() == {TOTALS}


def test_without_a_checkpoint_directory_it_is_refused() -> None:
    output = KafkaOutput("kafka totals", KafkaParams.parse({"bootstrap.servers": "fake:1"}), "kstream")
    with pytest.raises(ConfigurationError, match="needs a checkpoint directory"):
        output.restore(Writer("", 0, "", lambda _: None, lambda _time, _nonce: False), None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, {}, {}, "exactly-once", None, "kstream", "fail", True), "without a topic the output needs a name"),
        (("totals", {}, {}, "exactly-once", "a,b", "kstream", "fail", True), "give some text without commas"),
        (("totals", {}, {}, "exactly-once", None, "a b", "fail", True), "give the beginning of a topic's name"),
        (("totals", {}, {}, "twice", None, "kstream", "fail", True), "One of: exactly-once, at-least-once"),
        (("totals", {}, {}, "exactly-once", None, "kstream", "kep", True), "One of: fail, keep"),
    ],
)
def test_what_cannot_work_is_refused_at_the_call(given: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        kafka_output(*given)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("given", [{"compression.type": "zip"}, {"linger.ms": -1}])
def test_what_librdkafka_refuses_is_refused_at_the_call(delivery: str, given: Any) -> None:
    with pytest.raises(KafkaConfigError, match="was refused by librdkafka"):
        kafka_output("totals", {**BROKERS, **given}, {}, delivery, None, "kstream", "fail", True)
