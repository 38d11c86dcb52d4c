"""`kstream sink` and `kstream audit`, on a FakeKafka that a job has written to."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import Encoded
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.sink.audit import AuditEntry, audit_key, encode_entry
from kstream_kafka.sink.query_batches import QueryBatches
from kstream_kafka.sink.query_sources import NO_SOURCES, QuerySources
from kstream_kafka.sink.receipt import Fence, acceptance_key, decode_acceptance, encode_fence, fence_key
from kstream_kafka.tools import sink_command, sink_reading

from kstream.batch_time import Time
from kstream.cli import main
from kstream.errors import OutputChangedError
from kstream.offsets.offset_range import OffsetRange
from kstream.output import OutputBatch
from tests.kstream_kafka.sink.fake_kafka import installed
from tests.kstream_kafka.sink.jobs import AUDIT, RECEIPTS, TOTALS, Jobs, Partitions

FENCE = Fence(1, "w", 16)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    kafka = installed(monkeypatch)
    monkeypatch.setattr("kstream_kafka.sink.kafka_output.is_one_to_one", lambda rdd: not rdd.is_shuffled)
    monkeypatch.setattr(sink_reading, "KafkaDriverClient", kafka.client)
    monkeypatch.setattr(sink_reading, "TopicReader", kafka.reader)
    monkeypatch.setattr(sink_command, "RecordProducer", kafka.producer)
    kafka.create(TOTALS, 3)
    return Jobs(kafka)


def planned(begin: int, end: int) -> dict[int, KafkaPlan]:
    return {0: KafkaPlan([OffsetRange("orders", 0, begin, end)], [None], [None])}


def kstream(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, [*arguments, "--bootstrap", "fake:1"])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def audit(*arguments: str, code: int = 0) -> list[str]:
    return kstream("audit", *arguments, code=code).output.splitlines()


def written(jobs: Jobs) -> Any:
    """Two batches; the outcome of the second."""
    output = jobs.driver(topic=TOTALS)
    jobs.write(output, 1000, Partitions([1, 2], [3]), inputs=planned(0, 4))
    return jobs.write(output, 2000, Partitions([4], []), inputs=planned(4, 5))


# -- sink


def test_ls_lists_each_output_with_its_newest_batch(jobs: Jobs) -> None:
    written(jobs)
    (row,) = json.loads(kstream("sink", "ls", "--json").output)["outputs"]
    assert row == {
        "output": "kafka totals",
        "job": "job",
        "batch": 2000,
        "receipts": 1,
        "partitions": 2,
        "records": 1,
        "epoch": 1,
        "accepted": None,
    }
    assert "1970-01-01T00:00:02.000+00:00" in kstream("sink", "ls").output


def test_show_shows_the_newest_receipt_of_each_partition(jobs: Jobs) -> None:
    written(jobs)
    shown = kstream("sink", "show", "kafka totals").output
    assert "the driver of epoch 1 may write" in shown
    assert "newest batch 2000 ms: totals: 1 record; 1 of 2 partitions have a receipt, an empty one needs none" in shown
    data = json.loads(kstream("sink", "show", "--json").output)
    receipts = [(one["partition"], one["time_ms"], one["num_records"]) for one in data["receipt of each partition"]]
    assert receipts == [(0, 2000, 1), (1, 1000, 1)]


def test_abort_ends_the_transactions_that_a_dead_driver_has_left(jobs: Jobs) -> None:
    written(jobs)
    left = jobs.kafka.transaction({}, "kstream-job-kafka totals-1", 60_000)
    left.open()
    left.begin()
    left.send((TOTALS, None, b"left", (), 1, None))
    assert jobs.kafka.open
    assert "2 transactional ids of kafka totals taken" in kstream("sink", "abort", "kafka totals", "--yes").output
    assert not jobs.kafka.open and jobs.numbers() == [1, 2, 3, 4]


def test_abort_asks_first(jobs: Jobs) -> None:
    written(jobs)
    before = dict(jobs.kafka.epochs)
    assert "End the open transactions of kafka totals" in kstream("sink", "abort", code=1).output
    assert jobs.kafka.epochs == before


def test_accept_lets_a_half_written_batch_end(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1], [2, 3]), partitions=[1])
    output, moved = jobs.driver(), Partitions([1, 3], [2], is_shuffled=True)
    with pytest.raises(OutputChangedError):
        jobs.write(output, 1000, moved, is_first_try=False)
    shown = kstream("sink", "accept", "--batch", "1000").output
    assert shown == "batch 1000 ms of kafka totals is accepted: 1 of 2 partitions stand, the rest is written by the next try\n"
    jobs.write(output, 1000, moved, is_first_try=False)
    assert jobs.numbers() == [1, 2, 3, 3]
    assert "batch 1000 ms was accepted as it was written" in kstream("sink", "show").output


def test_accept_refuses_a_batch_that_is_not_the_newest_one(jobs: Jobs) -> None:
    written(jobs)
    refused = kstream("sink", "accept", "--batch", "1000", code=1).output
    assert "has not written a part of batch 1000 ms last: its newest batch is 2000 ms" in refused
    assert not [entry for entry in jobs.kafka.topics[RECEIPTS][1][0] if entry.its_key == acceptance_key("job", "kafka totals")]
    kstream("sink", "accept", "--batch", "2000")
    assert decode_acceptance(jobs.kafka.topics[RECEIPTS][1][0][-1].its_value or b"", "") == 2000


def test_an_output_must_be_named_if_there_are_several(jobs: Jobs) -> None:
    written(jobs)
    jobs.kafka.append(RECEIPTS, 0, fence_key("other", "kafka totals", FENCE), encode_fence(FENCE))
    assert "several outputs fit: kafka totals of job job; kafka totals of job other" in kstream("sink", "show", code=3).output
    assert "no output fits" in kstream("sink", "show", "nothing", code=3).output
    assert "the driver of epoch 1" in kstream("sink", "show", "--job", "oth").output


def test_without_a_topic_of_receipts_the_commands_say_so(jobs: Jobs) -> None:
    assert "there is no topic kstream-receipts" in kstream("sink", "ls", code=3).output
    assert "there is no topic other-audit" in "\n".join(audit("--prefix", "other", code=3))


def test_no_text_of_a_record_reaches_the_terminal_as_a_command(jobs: Jobs) -> None:
    hostile = "\x1b]0;PWNED\x07\x1b[2J\x1b[31mred\u202e"
    jobs.kafka.create(RECEIPTS, 17)
    jobs.kafka.create(AUDIT, 1)
    jobs.kafka.append(RECEIPTS, 0, fence_key(hostile, hostile, FENCE), encode_fence(FENCE))
    entry = AuditEntry(hostile, hostile, 1, 1000, "", 1, inputs={hostile: [(hostile, 0, 0, 1)]})
    jobs.kafka.append(AUDIT, 0, audit_key(hostile, hostile), encode_entry(entry))
    for shown in (kstream("sink", "ls").output, kstream("sink", "show").output, "\n".join(audit())):
        assert "PWNED" in shown
        assert [character for character in shown if unicodedata.category(character) in ("Cc", "Cf") and character != "\n"] == []


# -- queries


def query_writes(batch: int, *numbers: int, query: str = "4f1e", sources: QuerySources = NO_SOURCES) -> None:
    def records() -> list[Encoded]:
        return [(TOTALS, None, b"%d" % number, (), number, None) for number in numbers]

    batches = QueryBatches(KafkaParams.parse({"bootstrap.servers": "fake:1"}), "kstream", query, TOTALS)
    batches.write(batch, records, 100, sources)


def read(batch: int, begin: int, end: int) -> QuerySources:
    sources = QuerySources(None)
    sources._read.update({number: {"0": {"orders": {"0": at}}} for number, at in ((batch - 1, begin), (batch, end))})
    return sources


def test_queries_are_listed_beside_the_outputs_of_jobs(jobs: Jobs) -> None:
    written(jobs)
    query_writes(0, 1, 2)
    query_writes(7, 3)
    data = json.loads(kstream("sink", "ls", "--json").output)
    assert [row["output"] for row in data["outputs"]] == ["kafka totals"]
    (query,) = data["queries"]
    assert (query["query"], query["batch"], query["num_records"], query["topics"]["totals"]["records"]) == ("4f1e", 7, 1, 1)
    shown = kstream("sink", "ls").output
    assert "kafka totals" in shown and "4f1e" in shown


def test_show_shows_the_receipt_of_a_query_and_abort_ends_its_transaction(jobs: Jobs) -> None:
    query_writes(3, 1, 2)
    assert kstream("sink", "show").output.splitlines() == ["query 4f1e", "  newest batch 3: 2 records", "  totals: 2 records, 2 bytes"]
    assert json.loads(kstream("sink", "show", "query", "--job", "4f", "--json").output)["batch"] == 3
    left = jobs.kafka.transaction({}, "kstream-query-4f1e", 60_000)
    left.open()
    left.begin()
    assert jobs.kafka.open
    assert "1 transactional id of query 4f1e taken" in kstream("sink", "abort", "query", "--yes").output
    assert not jobs.kafka.open


def test_a_batch_of_a_query_is_never_half_written_so_there_is_nothing_to_accept(jobs: Jobs) -> None:
    query_writes(3, 1)
    assert "query 4f1e writes each batch as a whole" in kstream("sink", "accept", "query", "--batch", "3", code=1).output


# -- audit


def test_what_a_job_has_written_exactly_once_is_proved(jobs: Jobs) -> None:
    stored = written(jobs)
    jobs.write(jobs.driver(stored), 3000, Partitions([5], [6]), is_first_try=False, inputs=planned(5, 9))
    assert audit() == [
        "kafka totals of job job: 3 batches with records, from 1000 ms to 3000 ms",
        "  input   stream 0, orders-0: each of the offsets 0 to 8 is in one batch",
        "  output  totals: 6 records from batch 1000 ms on, as the receipts say",
        "proved",
    ]
    report = json.loads("\n".join(audit("--json")))
    assert (report["verdict"], report["batches"], report["findings"]) == ("proved", 3, [])


def test_what_a_query_has_written_is_proved_too(jobs: Jobs) -> None:
    query_writes(1, 1, 2, sources=read(1, 0, 4))
    query_writes(3, 3, sources=read(3, 4, 5))
    assert audit() == [
        "query 4f1e: 2 batches with records, from 1 to 3",
        "  input   stream 0, orders-0: each of the offsets 0 to 4 is in one batch",
        "  output  totals: 3 records from batch 1 on, as the receipts say",
        "proved",
    ]
    report = json.loads("\n".join(audit("query", "--job", "4f", "--json")))
    assert (report["job"], report["output"], report["first"], report["last"]) == ("4f1e", "query", 1, 3)


def test_what_is_wrong_with_a_query_is_found(jobs: Jobs) -> None:
    query_writes(1, 1, 2, sources=read(1, 0, 4))
    jobs.kafka.append(TOTALS, 0, None, b"1")
    query_writes(3, 3, sources=read(3, 3, 5))
    query_writes(5, 4, sources=read(5, 6, 7))
    assert audit(code=1)[1:] == [
        "  stream 0, orders-0: offsets 3 to 3 are in two batches, 1 and 3",
        "  stream 0, orders-0: offsets 5 to 5 are in no batch, between 3 and 5",
        "  topic totals, batch 3: 1 record more than the receipts say, written twice or by another program",
        "NOT exactly once",
    ]


def test_a_record_that_is_there_twice_is_found(jobs: Jobs) -> None:
    output = jobs.driver(topic=TOTALS)
    jobs.write(output, 1000, Partitions([1]), inputs=planned(0, 1))
    jobs.kafka.append(TOTALS, 0, None, b"1")
    jobs.write(output, 2000, Partitions([2]), inputs=planned(1, 2))
    lines = audit(code=1)
    assert lines[-2:] == [
        "  topic totals, batch 2000 ms: 1 record more than the receipts say, written twice or by another program",
        "NOT exactly once",
    ]
    assert audit("--inputs-only")[-1] == "proved for the input"


def test_a_batch_that_was_given_up_is_a_hole_and_no_loss(jobs: Jobs) -> None:
    """Half of it is written, then its plan is set aside. Without the record these would be lost offsets and records too many."""
    output = jobs.driver(topic=TOTALS)
    stored = jobs.write(output, 1000, Partitions([1, 2], [3]), inputs=planned(0, 4))
    batch = OutputBatch(Time(2000), "plan of 2000", True)
    rdd: Any = Partitions([4], [5, 6])
    output.prepare(batch, rdd)
    output.run(batch, rdd, [1])
    del jobs.kafka.topics[AUDIT][1][0][-1]  # the driver has died before it wrote the entry
    later = jobs.driver(stored, given_up=[500, 2000, 9000], topic=TOTALS)
    jobs.write(later, 3000, Partitions([7], [8]), is_first_try=False, inputs=planned(6, 8))
    for entry in (entry for log in jobs.kafka.topics[RECEIPTS][1][1:] for entry in log if b'"batch":2000' in (entry.its_value or b"")):
        entry.its_key = None  # compaction has removed the receipt
    jobs.write(jobs.driver(stored, given_up=[2000], topic=TOTALS), 3000, Partitions([7], [8]), is_first_try=False, inputs=planned(6, 8))
    shown = kstream("sink", "show", "kafka totals").output
    assert "batch 2000 ms was given up: 2 records of it are written" in shown and "500 ms" not in shown
    assert json.loads(kstream("sink", "show", "--json").output)["given up"] == [{"batch": 2000, "records": 2}]
    assert audit("kafka totals", code=3)[1:] == [
        "  batch 2000 ms was given up: 2 records of it are written, and nobody writes the others",
        "  stream 0, orders-0: offsets 4 to 5 are in no batch, between 1000 ms and 3000 ms, where a batch was given up",
        "not provable",
    ]


def test_what_was_written_of_a_batch_whose_completion_is_not_stored_is_known_though_it_is_given_up(jobs: Jobs) -> None:
    output = jobs.driver(topic=TOTALS)
    stored = jobs.write(output, 1000, Partitions([1, 2], [3]), inputs=planned(0, 4))
    jobs.write(output, 2000, Partitions([4], []), inputs=planned(4, 5))
    jobs.write(jobs.driver(stored, given_up=[2000], topic=TOTALS), 3000, Partitions([7], []), is_first_try=False, inputs=planned(5, 6))
    assert audit("kafka totals")[-1] == "proved"


def test_input_that_no_batch_has_is_found(jobs: Jobs) -> None:
    output = jobs.driver(topic=TOTALS)
    jobs.write(output, 1000, Partitions([1]), inputs=planned(0, 1))
    jobs.write(output, 2000, Partitions([2]), inputs=planned(3, 4))
    assert "stream 0, orders-0: offsets 1 to 2 are in no batch" in audit(code=1)[1]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda kafka: kafka.topics.pop(TOTALS), "topic totals is gone"),
        (lambda kafka: kafka.topics.update({TOTALS: ("id 9", [[]])}), "topic totals has fewer partitions than it had: it was made anew"),
        (lambda kafka: kafka.begins.update({(TOTALS, 1): 1}), "topic totals has lost its oldest records to retention, in partitions [1]"),
        (lambda kafka: kafka.policies.update({TOTALS: "compact"}), "topic totals is compacted: older records of a key may be gone"),
    ],
)
def test_what_nobody_can_know_has_an_exit_code_of_its_own(jobs: Jobs, change: Any, found: str) -> None:
    written(jobs)
    change(jobs.kafka)
    assert audit(code=3)[-2:] == [f"  {found}", "not provable"]


def test_a_topic_whose_first_batch_has_no_beginning_is_not_provable(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1]), inputs=planned(0, 1))
    assert audit(code=3)[-2].endswith("has no entry before its first batch, which says where the records of that batch begin")


def test_an_output_without_a_batch_is_not_provable(jobs: Jobs) -> None:
    jobs.write(jobs.driver(topic=TOTALS), 1000, Partitions([]))
    assert "  no batch has an entry" in audit(code=3)


def test_a_log_that_is_shorter_than_it_was_is_not_provable(jobs: Jobs) -> None:
    written(jobs)
    jobs.kafka.topics[TOTALS][1][1].clear()
    assert audit(code=3)[-2] == "  topic totals has a shorter log than it had: it was made anew"


def test_many_findings_are_counted_and_not_printed(jobs: Jobs) -> None:
    output = jobs.driver(topic=TOTALS)
    for number in range(30):
        jobs.write(output, (number + 1) * 1000, Partitions([number]), inputs=planned(number * 2, number * 2 + 1))
    assert audit("--inputs-only", code=1)[-2:] == ["  and 9 more; --json has all", "NOT exactly once"]


def test_the_audit_of_one_output_reads_no_other(jobs: Jobs) -> None:
    written(jobs)
    jobs.kafka.append(AUDIT, 0, audit_key("other", "kafka totals"), encode_entry(AuditEntry("other", "kafka totals", 1, 1000, "x", 1)))
    assert "several outputs fit" in "\n".join(audit(code=3))
    assert audit("kafka totals", "--job", "job")[-1] == "proved"
