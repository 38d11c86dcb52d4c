"""The connector's errors: facts, messages, pickling."""

from __future__ import annotations

import pickle

import pytest
from kstream_kafka import errors as e

from kstream.errors import KStreamError

WHERE = ("t", 1, 5, 9)
ALL = [
    e.KafkaConfigError("a.b", "is unknown", "Did you mean 'a.c'?"),
    e.SourceOptionError("startingOffset", "is unknown", "Did you mean 'startingOffsets'?"),
    e.BrokerUnreachableError("h:1", 2000, "refused"),
    e.AuthenticationFailedError("h:1", "SASL_SSL", "PLAIN", "no such user", "Check it."),
    e.TlsFailedError("h:1", "SSL", "", "expired", "Renew it."),
    e.NotAuthorizedError("h:1", "READ", "topic", "t", "Topic authorization failed"),
    e.GroupNotEmptyError("h:1", "g", "unknown member"),
    e.UnknownTopicError(["t"], 4, 100),
    e.LeaderNotAvailableError({("t", 0): "not leader"}, 1),
    e.PartitionRevokedError([("t", 0)]),
    e.LogShrankError([("t", 0, 9, 4)]),
    e.RecordsRemovedError(WHERE, 5, 7, 20),
    e.LogTruncatedError(WHERE, (7, 9), 9, "the partition ends at 7"),
    e.TopicRecreatedError("t", "one", "two", [(1, 5, 9), (2, 4, 4)]),
    e.PollTimeoutError(WHERE, 6, 100, "down"),
    e.MalformedValueError("t", 1, 6, "is empty"),
]


@pytest.mark.parametrize("error", ALL, ids=lambda x: type(x).__name__)
def test_every_error_survives_pickling_with_its_facts(error: KStreamError):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.facts == error.facts
    assert isinstance(again, e.KafkaError)


def test_every_error_is_in_the_tree_of_the_docstring():
    classes = {name for name, c in vars(e).items() if isinstance(c, type) and issubclass(c, KStreamError) and name[0] != "_"}
    assert e.__doc__ is not None
    assert all(name in e.__doc__ for name in classes)


def test_a_long_list_of_partitions_is_cut_and_counted():
    assert "(30 in all)" in str(e.PartitionRevokedError([("t", i) for i in range(30)]))
