"""Other offsets for a stream that does not run: what the next plan says, what it skips, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError
from kstream_kafka.tools.offset_reset import empty_plan_at, reset_offsets, rewound_offsets

from kstream.connectors import OffsetChange, ResetResult
from kstream.errors import ConfigurationError
from tests.kstream_kafka.fakes import FakeClient

DATA: dict[str, Any] = {
    "ranges": [["a", 0, 10, 20], ["a", 1, 5, 6], ["b", 0, 0, 3]],
    "leader_epochs": [7, 7, 2],
    "from_epochs": [6, 7, 2],
    "topic_ids": {"a": "a-1", "b": "b-1"},
}
LOGS = {("a", 0): (4, 40), ("a", 1): (0, 9), ("b", 0): (0, 3)}
IDS = {"a": "a-1", "b": "b-1"}


def reset(to: Any, topics: Any = (), logs: Any = None, ids: Any = None, client: FakeClient | None = None) -> ResetResult:
    cluster = client or FakeClient(dict(logs or LOGS), ids=dict(ids or IDS))
    return reset_offsets({"bootstrap.servers": "h:1"}, DATA, to, topics, lambda _params: cluster)


def ends(moved: ResetResult) -> dict[tuple[str, int], int]:
    assert all(begin == end for _, _, begin, end in moved.data["ranges"])
    return {(t, n): at for t, n, at, _ in moved.data["ranges"]}


def test_earliest_goes_back_and_skips_nothing():
    moved = reset("earliest")
    assert ends(moved) == {("a", 0): 4, ("a", 1): 0, ("b", 0): 0}
    assert moved.changes == [OffsetChange("a", 0, 20, 4), OffsetChange("a", 1, 6, 0), OffsetChange("b", 0, 3, 0)]
    assert moved.skipped == []
    assert moved.data["leader_epochs"] == [None, None, None]


def test_latest_skips_and_says_what():
    moved = reset("latest", ["a"])
    assert ends(moved) == {("a", 0): 40, ("a", 1): 9, ("b", 0): 3}
    assert [(e["partition"], e["from"], e["until"], e["cause"]) for e in moved.skipped] == [(0, 20, 40, "reset"), (1, 6, 9, "reset")]
    assert moved.data["leader_epochs"] == [7, 7, 2]  # as the leaders told them with the ends


def test_single_partitions_move_and_the_others_stay():
    moved = reset({"a": {"0": 12, "1": "latest"}})
    assert ends(moved) == {("a", 0): 12, ("a", 1): 9, ("b", 0): 3}
    assert [m.partition for m in moved.changes] == [0, 1]


def test_a_moment_ago_is_found_by_the_brokers():
    client = FakeClient(dict(LOGS), ids=dict(IDS), times={("a", 0): [(0, 30)], ("a", 1): [(0, 2)]})
    moved = reset("-2h", ["a"], client=client)
    assert ends(moved) == {("a", 0): 40, ("a", 1): 9, ("b", 0): 3}  # nothing so late: the end
    assert client.closed


def test_a_topic_made_anew_is_taken_whole_as_it_is_now():
    moved = reset("earliest", ["a"], {("a", 0): (2, 5), ("a", 3): (0, 1), ("b", 0): (0, 3)}, {"a": "a-2", "b": "b-1"})
    assert ends(moved) == {("a", 0): 2, ("a", 3): 0, ("b", 0): 3}
    assert moved.data["topic_ids"] == {"a": "a-2", "b": "b-1"} and moved.skipped == []
    assert [(m.partition, m.old, m.new, m.note) for m in moved.changes] == [
        (0, 20, 2, "the topic was recreated"),
        (1, 6, None, "the topic was recreated"),
        (3, None, 0, "the topic was recreated"),
    ]


@pytest.mark.parametrize(
    "to, topics, words",
    [
        ({"a": {"0": 41}}, (), r"outside of their logs: a-0: 41 \(the log is \[4, 40\)\)"),
        ({"a": {"0": 3}}, (), "outside of their logs"),
        ({"a": {"9": 3}}, (), "which the stream does not read"),
        ({"a": 3}, (), "no object of topics, partitions and positions"),
        ("12", (), "one offset 12 for all partitions"),
        ("soon", (), "Give 'earliest'"),
        ("earliest", ("c",), "the stream reads a, b"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(to: Any, topics: Any, words: str):
    with pytest.raises(ConfigurationError, match=words):
        reset(to, topics)


def test_a_position_that_nobody_understands_is_refused_before_a_broker_is_asked():
    def no_client(_params: Any) -> Any:
        raise AssertionError("a client was made")

    with pytest.raises(ConfigurationError, match="Give 'earliest'"):
        reset_offsets({"bootstrap.servers": "h:1"}, DATA, "soon", (), no_client)


def test_partitions_of_a_recreated_topic_must_all_be_given():
    with pytest.raises(KafkaConfigError, match=r"leaves out \[\('a', 3\)\] of a recreated topic"):
        reset({"a": {"0": 2}}, (), {("a", 0): (2, 5), ("a", 3): (0, 1), ("b", 0): (0, 3)}, {"a": "a-2", "b": "b-1"})


def test_a_partition_that_is_not_there_is_refused():
    with pytest.raises(PartitionRevokedError, match=r"^Partitions a-1 are"):
        reset("earliest", ["a"], {("a", 0): (0, 5), ("b", 0): (0, 3)})


def test_a_rewind_stands_where_the_earlier_batch_began_with_its_epochs():
    then = {**DATA, "ranges": [["a", 0, 2, 4], ["a", 1, 0, 5], ["b", 0, 0, 0]], "from_epochs": [3, None, 2]}
    moved = rewound_offsets(DATA, then, ["a"])
    assert ends(moved) == {("a", 0): 2, ("a", 1): 0, ("b", 0): 3}
    assert moved.data["leader_epochs"] == [3, None, 2] and moved.skipped == []


def test_a_rewind_past_the_making_of_a_topic_is_refused():
    with pytest.raises(KafkaConfigError, match="was recreated"):
        rewound_offsets(DATA, {**DATA, "topic_ids": {"a": "a-0", "b": "b-1"}})


def test_an_empty_plan_reads_nothing_and_forgets_nothing():
    data = {**DATA, "ahead": [["b", 0]], "until": [["a", 0, 99]]}
    still = empty_plan_at(data)
    assert still["ranges"] == [["a", 0, 20, 20], ["a", 1, 6, 6], ["b", 0, 3, 3]]
    assert (still["leader_epochs"], still["ahead"], still["until"]) == ([7, 7, 2], [["b", 0]], [["a", 0, 99]])
