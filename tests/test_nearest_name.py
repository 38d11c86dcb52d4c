"""A hint names what was probably meant, or is not there."""

from __future__ import annotations

import pytest

from kstream.nearest_name import did_you_mean, nearest_names

KNOWN = ["bootstrap.servers", "group.id", "client.id", "kafka.maxRatePerPartition", "log.maxRatePerPartition", "receiver.maxRate", "clock"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bootstrap.server", ["bootstrap.servers"]),
        ("BOOTSTRAP_SERVERS", ["bootstrap.servers"]),
        ("bootstrapServers", ["bootstrap.servers"]),
        ("kafka.bootstrap.servers", ["bootstrap.servers"]),
        ("gruop.id", ["group.id"]),
        ("groupId", ["group.id"]),
        ("kafka.maxRatePerPartiton", ["kafka.maxRatePerPartition"]),
        ("kafka.maxRate", ["kafka.maxRatePerPartition"]),
        ("maxRatePerPartition", ["kafka.maxRatePerPartition", "log.maxRatePerPartition"]),
        ("receiver.maxrate", ["receiver.maxRate"]),
    ],
)
def test_a_mistyped_name_has_the_names_that_it_looks_like(name: str, meant: list[str]) -> None:
    assert nearest_names(name, KNOWN) == meant


@pytest.mark.parametrize("name", ["subscribe", "foo.bar", "lock.id", "id", "", "rate", "brokers"])
def test_a_name_like_no_other_has_no_hint(name: str) -> None:
    assert nearest_names(name, KNOWN) == [] and nearest_names(name, []) == []


def test_a_hint_is_a_question_with_all_names() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a.b"]) == "Did you mean 'a.b'?"
    assert did_you_mean(["a", "b"]) == "Did you mean 'a' or 'b'?"
    assert did_you_mean(["a", "b", "c"]) == "Did you mean 'a', 'b' or 'c'?"
