"""Records that are gone before they were read, on the real broker: three causes, three policies, and what the ledger says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from kstream_kafka import KafkaUtils, consumer_record

from integration.kafka_broker import KafkaBroker
from kstream import StreamingContext, StreamingListener
from kstream.cli import main

MakeTopic = Callable[..., str]


RUNS: dict[str, Run] = {}


class Run:
    """A stream over one topic with a checkpoint; its driver can be started again. Batches take what was not read before."""

    def __init__(self, sc: Any, kafka: KafkaBroker, checkpoint: Path, topic: str, policy: str) -> None:
        self.sc, self.kafka, self.checkpoint, self.topic, self.policy = sc, kafka, checkpoint, topic, policy
        self.read: list[str] = []
        self.lost: list[Any] = []
        self.hold: Callable[[], None] = lambda: None

    @contextmanager
    def driver(self) -> Iterator[StreamingContext]:
        ssc = StreamingContext(self.sc, 0.5)
        ssc.checkpoint(str(self.checkpoint))
        params = {"bootstrap.servers": self.kafka.bootstrap, "auto.offset.reset": "earliest"}
        stream = KafkaUtils.createDirectStream(ssc, [self.topic], params, messageHandler=consumer_record, onDataLoss=self.policy)
        ssc.addStreamingListener(Losses(self.lost))

        RUNS[name := str(self.checkpoint)] = self

        def batch(rdd: Any) -> None:  # stored with the graph: it holds no more than a name
            from integration.test_data_loss import RUNS

            if rdd.offsetRanges()[0].count():
                RUNS[name].hold()
            RUNS[name].read.extend(rdd.map(lambda r: r.value).collect())

        stream.foreachRDD(batch)
        ssc.start()
        try:
            yield ssc
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)

    def until(self, ssc: StreamingContext, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not reached():
            assert time.monotonic() < deadline, (self.read, self.lost)
            ssc.awaitTerminationOrTimeout(0.1)

    def ledger(self) -> list[dict[str, Any]]:
        return json.loads(CliRunner().invoke(main, ["ledger", str(self.checkpoint), "--json"]).output)["lost"]


class Losses(StreamingListener):
    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def onDataLost(self, dataLost: Any) -> None:
        self.into.append(dataLost)


def numbers(begin: int, end: int) -> list[Any]:
    return [(None, str(i), 0) for i in range(begin, end)]


def cut_beginning(kafka: KafkaBroker, topic: str, at: int) -> None:
    where = TopicPartition(topic, 0, at)
    kafka.admin.delete_records([where])[where].result(30)


def made_anew(kafka: KafkaBroker, topic: str) -> None:
    kafka.delete_topic(topic)
    deadline = time.monotonic() + 30
    while True:
        try:
            kafka.create_topic(topic, 1)
            return
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("policy", ["skip", "report"])
def test_what_retention_takes_from_a_planned_batch_is_in_the_ledger_and_the_rest_is_read(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path, policy: str
) -> None:
    """The log's beginning moves after the plan and before the read: no look at planning could have seen it."""
    t = topic()
    kafka.produce(t, numbers(0, 10))
    run = Run(sc, kafka, tmp_path, t, policy)
    run.hold = lambda: cut_beginning(kafka, t, 6)
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) >= 4 and bool(run.ledger()))
        run.hold = lambda: None
        kafka.produce(t, numbers(10, 12))
        run.until(ssc, lambda: len(run.read) >= 6)
    assert run.read == [str(i) for i in range(6, 12)]
    [entry] = run.ledger()
    assert (entry["topic"], entry["partition"], entry["from"], entry["until"], entry["cause"]) == (t, 0, 0, 6, "retention")
    assert [event.lost[0][0]["until"] for event in run.lost] == ([6] if policy == "report" else [])


def test_by_default_a_loss_fails_the_batch_and_says_what_to_do(sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path) -> None:
    t = topic()
    kafka.produce(t, numbers(0, 10))
    run = Run(sc, kafka, tmp_path, t, "fail")
    run.hold = lambda: cut_beginning(kafka, t, 6)
    with (
        pytest.raises(Exception, match=rf"RecordsRemovedError: {t}-0 \[0, 10\): records \[0, 6\) were removed.*kstream offsets"),
        run.driver() as ssc,
    ):
        run.until(ssc, lambda: False)
    assert run.read == [] and run.ledger() == []
    run.policy, run.hold = "skip", lambda: None
    with run.driver() as ssc:  # the same plan again, as its policy is now
        run.until(ssc, lambda: len(run.read) == 4 and bool(run.ledger()))
    assert run.read == ["6", "7", "8", "9"]


def test_a_topic_made_anew_between_plan_and_read_is_found_and_not_read(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    """The new topic holds as many records, under the same leader epoch: only its id is another."""
    t = topic()
    kafka.produce(t, numbers(0, 10))

    def again() -> None:
        run.hold = lambda: None
        made_anew(kafka, t)
        kafka.produce(t, [(None, f"new {i}", 0) for i in range(30)])

    run = Run(sc, kafka, tmp_path, t, "skip")
    run.hold = again
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) >= 30)
    assert run.read == [f"new {i}" for i in range(30)]
    causes = {(entry["cause"], entry["from"]) for entry in run.ledger()}
    assert ("recreation", 0) in causes and {cause for cause, _ in causes} == {"recreation"}


def test_a_topic_made_anew_while_no_driver_ran_is_an_error_until_it_is_allowed(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t = topic()
    kafka.produce(t, numbers(0, 5))
    run = Run(sc, kafka, tmp_path, t, "fail")
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) == 5)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    made_anew(kafka, t)
    kafka.produce(t, [(None, f"new {i}", 0) for i in range(9)])
    with pytest.raises(Exception, match="deleted and created again: its id was"), run.driver() as ssc:
        run.until(ssc, lambda: False)
    assert len(run.read) == 5
    run.policy = "skip"
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) == 14)
    assert run.read[5:] == [f"new {i}" for i in range(9)]


def test_a_gap_that_a_transaction_or_compaction_left_is_no_loss(sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    t = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": t})
    producer.init_transactions(30)
    for fate in ("commit_transaction", "abort_transaction", "commit_transaction"):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(t, f"{fate} {i}", partition=0)
        producer.flush(30)  # aborting forgets what has not been sent
        getattr(producer, fate)(30)
    run = Run(sc, kafka, tmp_path, t, "skip")
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) >= 9)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert len(run.read) == 9  # aborted ones too: read_uncommitted is the default
    assert run.ledger() == []


def test_the_end_of_a_batch_says_how_many_records_its_ranges_held(sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path) -> None:
    from kstream.checkpoint import format
    from kstream.storage import LocalFileStore

    t = topic()
    kafka.produce(t, numbers(0, 7))
    run = Run(sc, kafka, tmp_path, t, "fail")
    with run.driver() as ssc:
        run.until(ssc, lambda: len(run.read) == 7)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    store = LocalFileStore(tmp_path)
    done = [format.decode("done", store.read(f"done/{name}"), name, dict) for name in store.list("done")]
    assert max(record["counts"]["0"][0] for record in done if "counts" in record) == 7


def test_the_ids_of_topics_are_one_request_and_unknown_for_topics_that_are_not_there(kafka: KafkaBroker, topic: MakeTopic) -> None:
    from kstream_kafka.client.driver_client import KafkaDriverClient
    from kstream_kafka.client.params import KafkaParams

    client = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}))
    one, two = topic(), topic(3)
    ids = client.topic_ids([one, two, "never-made"])
    assert sorted(ids) == sorted([one, two]) and ids[one] != ids[two]
    assert "never-made" not in kafka.admin.list_topics(timeout=10).topics
    made_anew(kafka, one)
    assert client.topic_ids([one])[one] != ids[one]
