"""The nodes of a group are those of Kafka's 0.8 consumer, to the letter."""

from __future__ import annotations

import json

import pytest
from kstream_kafka.zookeeper.zookeeper_layout import GroupNodes, consumer_id, offset_text, registration, servers_and_root, subscription


def test_the_paths() -> None:
    nodes = GroupNodes("etl")
    assert nodes.consumer("etl_host-1-abc") == "/consumers/etl/ids/etl_host-1-abc"
    assert nodes.owner(("orders", 12)) == "/consumers/etl/owners/orders/12"
    assert nodes.offset(("orders", 12)) == "/consumers/etl/offsets/orders/12"
    assert GroupNodes("etl", "/kafka").ids == "/kafka/consumers/etl/ids"


@pytest.mark.parametrize(
    ("quorum", "expected"),
    [
        ("h1:2181,h2:2181", ("h1:2181,h2:2181", "")),
        ("h1:2181,h2:2181/chroot", ("h1:2181,h2:2181", "/chroot")),
        ("h:2181/a/b/", ("h:2181", "/a/b")),
        ("h:2181/", ("h:2181", "")),
    ],
)
def test_a_quorum_may_have_a_chroot(quorum: str, expected: tuple[str, str]) -> None:
    assert servers_and_root(quorum) == expected


def test_a_registration_says_what_kafkas_did() -> None:
    content = registration({"orders": 2}, 1416000000000)
    assert json.loads(content) == {"version": 1, "subscription": {"orders": 2}, "pattern": "static", "timestamp": "1416000000000"}
    assert subscription(content) == {"orders": 2}
    assert consumer_id("etl", "host", 1416000000000, "0123456789abcdef") == "etl_host-1416000000000-01234567"
    assert offset_text(17) == b"17"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"subscription":{"t":"x"}}', b'{"pattern":"white_list","subscription":{"t.*":1}}']
)
def test_who_cannot_be_understood_reads_nothing(content: bytes) -> None:
    assert subscription(content) == {}
