"""What is stored beside a checkpoint holds no secret: settings, functions, and the digest of the code."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kstream import restore
from kstream.checkpoint import names
from kstream.checkpoint.sidecar import changed, code_digest, read_sidecar
from kstream.dstream.recipe import Recorder
from kstream.storage import open_store

PLANTED = "pl4nt3d-s3cr3t"


def test_a_setting_with_a_user_in_its_url_is_not_stored() -> None:
    stored = restore.savable_conf(
        [("spark.streaming.checkpoint.directory", f"s3://key:{PLANTED}@bucket/x"), ("spark.streaming.kstream.recovery", "auto")]
    )
    assert stored == {"spark.streaming.kstream.recovery": "auto"}


@pytest.mark.parametrize("why_not", [None, "a Kafka parameter may hold a secret"])
def test_functions_of_a_graph_that_only_setup_can_make_are_not_stored(why_not: str | None) -> None:
    store, recorder = open_store(f"memory://{uuid.uuid4().hex}"), Recorder()
    recorder.why_not = why_not
    restore.store_graph(store, recorder, PLANTED.encode(), {}, (1000, None), {})
    stored = read_sidecar(store)
    assert not isinstance(stored, str)
    assert stored[1] == (PLANTED.encode() if why_not is None else b"")
    assert restore.load_graph(store, lambda: None, "graph") == why_not or why_not is None
    assert PLANTED.encode() not in store.read(names.GRAPH)


def make(password: str, topic: str, params: dict[str, Any]) -> Callable[[], str]:
    return lambda: f"{topic} {password} {params}"


def job(topic: str, password: str) -> str:
    return topic + password


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (make("old", "orders", {}), make("new", "orders", {})),
        (
            make("", "orders", {"sasl.password": "old", "ssl.key.pem": "a"}),
            make("", "orders", {"sasl.password": "new", "ssl.key.pem": "b"}),
        ),
        (partial(job, "orders", password="old"), partial(job, "orders", password="new")),
    ],
    ids=["closed over", "in a dict", "argument of a partial"],
)
def test_a_password_is_no_part_of_the_digest_that_is_stored(first: Callable[[], Any], second: Callable[[], Any]) -> None:
    """A digest of it would be a way to try passwords; and with a new one the graph is the same."""
    assert code_digest(first)[""] == code_digest(second)[""]


def test_what_is_beside_a_password_still_is_a_part_of_it() -> None:
    stored = code_digest(make("p", "orders", {"sasl.password": "p", "group.id": "g"}))
    assert changed(stored, make("p", "returns", {"sasl.password": "p", "group.id": "g"})) == "setup has changed"
    assert changed(stored, make("p", "orders", {"sasl.password": "p", "group.id": "h"})) == "setup has changed"
