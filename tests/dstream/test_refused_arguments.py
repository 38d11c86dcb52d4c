"""What cannot be an argument is refused at the call: the traceback ends at the user's line, and the message says what to write."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from kstream_kafka.errors import KafkaConfigError

from kstream import Seconds, StateSpec
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.kstream_kafka.stream import BROKERS

ON_RECORDS = ["map", "flatMap", "filter", "mapPartitions", "mapPartitionsWithIndex", "reduce"]
BY_KEY = ["mapValues", "flatMapValues", "reduceByKey", "updateStateByKey"]


def stream() -> Any:
    return LogInput(FakeHost({}), [])


class SomeRdd:
    ctx = None


@pytest.mark.parametrize("given", [None, 3], ids=repr)
@pytest.mark.parametrize("operator", [*ON_RECORDS, *BY_KEY])
def test_what_is_no_function_is_refused_by_every_operator(operator: str, given: object) -> None:
    with pytest.raises(TypeError, match=rf"^{operator}: \w+ must be a function, it is {given}\. Give the function itself, not the result"):
        getattr(stream(), operator)(given)


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "window": (
        lambda: stream().window(2.5),
        "must be a positive multiple of the slide duration of its parent (1000 ms): give 2 or 3",
    ),
    "slide": (lambda: stream().window(4, 0.5), "the slide duration of a windowed stream (500 ms) must be"),
    "inverse": (lambda: stream().reduceByKeyAndWindow(max, 10, 2), "invFunc must be a function or None, it is 10. The order is"),
    "no function": (lambda: stream().reduceByKeyAndWindow(None, None, 10, 2), "reduceByKeyAndWindow: func must be a function, it is None"),
    "text": (lambda: stream().window("10s"), "'10s' is not a number of seconds: give a number, or a Duration"),
    "combiner": (lambda: stream().combineByKey(list, None, list), "combineByKey: mergeValue must be a function, it is None"),
    "output": (lambda: stream().foreachRDD(print()), "func must be a function of (rdd) or (time, rdd), it is None"),
    "state": (lambda: stream().mapWithState(len), "Give StateSpec.function(your function)"),
    "spec": (lambda: stream().mapWithState(StateSpec.function(None)), "StateSpec.function: mappingFunction must be a function"),  # pyright: ignore
    "update": (lambda: stream().updateStateByKey(lambda a, b, c: a), "must take (values, state) or (time, key, values, state)"),
    "join": (lambda: stream().join(SomeRdd()), "Use transform to combine each batch with an RDD"),
    "union": (lambda: stream().union([1]), "[1] is no DStream but of type list"),
    "Avro": (
        lambda: KafkaUtils.createDirectStream(FakeHost({}), ["t"], {**BROKERS, "value.deserializer": "io.confluent.KafkaAvroDeserializer"}),
        "a Java class that Python workers cannot call. Leave it out and give valueDecoder, a Python function of the bytes. The package",
    ),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_refused_call_ends_at_the_users_line_and_says_what_to_write(mistake: str) -> None:
    call, said = CALLS[mistake]
    with pytest.raises((TypeError, ValueError, KafkaConfigError)) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value)).splitlines()
    places = [line for line in shown if line.startswith("  File ")]
    assert said in shown[-1] and len(shown) <= 12
    assert __file__ in places[-2] and len([place for place in places if __file__ not in place]) == 1, shown


def test_arguments_that_are_right_are_taken() -> None:
    made = stream().map(str).filter(bool).reduceByKeyAndWindow(max, None, Seconds(4), 2).updateStateByKey(lambda new, old: old)
    assert "updateStateByKey" in repr(made)


@pytest.mark.parametrize("form", ["createDirectStream", "createStream"])
def test_kafkas_own_deserialisers_and_a_decoder_of_the_users_own_are_taken(form: str) -> None:
    params = {**BROKERS, "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"}
    avro = {**params, "value.deserializer": "io.confluent.KafkaAvroDeserializer"}
    start = ("z:2181", "group", {"t": 1}) if form == "createStream" else (["t"],)
    if form == "createDirectStream":
        KafkaUtils.createDirectStream(FakeHost({}), ["t"], avro, valueDecoder=len)
        KafkaUtils.createDirectStream(FakeHost({}), ["t"], params)
    with pytest.raises(KafkaConfigError, match="KafkaAvroDeserializer"):
        getattr(KafkaUtils, form)(FakeHost({}), *start, avro)
