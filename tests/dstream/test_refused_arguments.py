"""What cannot be an argument is refused at the call: the traceback ends at the user's line, and the message says what to write."""

from __future__ import annotations

import operator
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from inspect import signature
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from kstream_kafka.errors import KafkaConfigError

from kstream import DStream, Seconds, StateSpec, StreamingContext
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
    "no function of records": (
        lambda: stream().reduceByWindow(None, None, 10, 2),
        "reduceByWindow: reduceFunc must be a function, it is None",
    ),
    "text": (lambda: stream().window("10s"), "'10s' is not a number of seconds: give a number, or a Duration"),
    "combiner": (lambda: stream().combineByKey(list, None, list), "combineByKey: mergeValue must be a function, it is None"),
    "output": (lambda: stream().foreachRDD(print()), "func must be a function of (rdd) or (time, rdd), it is None"),
    "state": (lambda: stream().mapWithState(len), "Give StateSpec.function(your function)"),
    "spec": (lambda: stream().mapWithState(StateSpec.function(None)), "StateSpec.function: mappingFunction must be a function"),  # pyright: ignore
    "update": (lambda: stream().updateStateByKey(lambda a, b, c: a), "must take (values, state) or (time, key, values, state)"),
    "join": (lambda: stream().join(SomeRdd()), "Use transform to combine each batch with an RDD"),
    "union": (lambda: stream().union([1]), "[1] is no DStream but of type list"),
    "generator": (lambda: stream().foreachRDD(yields), "foreachRDD: func is a generator function, which nobody iterates over"),
    "coroutine": (lambda: stream().flatMap(awaits), "flatMap: f is an async function, which nobody awaits"),
    "state generator": (lambda: StateSpec.function(yields), "StateSpec.function: mappingFunction is a generator function"),
    "decoder": (lambda: direct(valueDecoder=awaits), "createDirectStream: valueDecoder is an async function"),
    "Avro": (
        lambda: KafkaUtils.createDirectStream(FakeHost({}), ["t"], {**BROKERS, "value.deserializer": "io.confluent.KafkaAvroDeserializer"}),
        "a Java class that Python workers cannot call. Leave it out and give valueDecoder, a Python function of the bytes. For Avro",
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


# -- functions whose call runs nothing of their body


def yields(*_given: Any) -> Iterator[Any]:
    yield 1


async def awaits(*_given: Any) -> None: ...


async def awaits_and_yields(*_given: Any) -> AsyncIterator[Any]:
    yield 1


class Called:
    def yields(self, *_given: Any) -> Iterator[Any]:
        yield 1

    def __call__(self, *_given: Any) -> Iterator[Any]:
        yield 1


class Awaited:
    async def __call__(self, *_given: Any) -> None: ...


GENERATORS = {"function": yields, "partial": partial(yields), "method": Called().yields, "object": Called()}
GENERATORS["partial of a method"] = partial(Called().yields)
ASYNC = {"coroutine": awaits, "partial coroutine": partial(awaits), "asynchronous generator": awaits_and_yields, "awaited": Awaited()}


NO_CONTEXT: Any = None
"""In the place of a context that a refused call does not reach."""


def direct(**options: Any) -> Any:
    return KafkaUtils.createDirectStream(FakeHost({}), ["t"], BROKERS, **options)


def of_context(method: str) -> Callable[..., Any]:
    """An operator of the context, without a context: as above."""
    return partial(getattr(StreamingContext, method), FakeHost({}))


def with_itself(f: Any) -> Any:
    one = stream()
    return one.transformWith(f, one)


RETURN: dict[str, Callable[[Any], Any]] = {
    "DStream.map": lambda f: stream().map(f),
    "DStream.filter": lambda f: stream().filter(f),
    "DStream.reduce": lambda f: stream().reduce(f),
    "DStream.mapValues": lambda f: stream().mapValues(f),
    "DStream.reduceByKey": lambda f: stream().reduceByKey(f),
    "DStream.combineByKey(createCombiner)": lambda f: stream().combineByKey(f, max, max),
    "DStream.combineByKey(mergeValue)": lambda f: stream().combineByKey(max, f, max),
    "DStream.combineByKey(mergeCombiners)": lambda f: stream().combineByKey(max, max, f),
    "DStream.partitionBy": lambda f: stream().partitionBy(2, f),
    "DStream.reduceByKeyAndWindow(func)": lambda f: stream().reduceByKeyAndWindow(f, None, 2),
    "DStream.reduceByKeyAndWindow(invFunc)": lambda f: stream().reduceByKeyAndWindow(max, f, 2),
    "DStream.reduceByKeyAndWindow(filterFunc)": lambda f: stream().reduceByKeyAndWindow(max, None, 2, filterFunc=f),
    "DStream.reduceByWindow(reduceFunc)": lambda f: stream().reduceByWindow(f, None, 2, 1),
    "DStream.reduceByWindow(invReduceFunc)": lambda f: stream().reduceByWindow(max, f, 2, 1),
    "DStream.updateStateByKey": lambda f: stream().updateStateByKey(f),
    "DStream.transform": lambda f: stream().transform(f),
    "DStream.transformWith": with_itself,
    "DStream.foreachRDD": lambda f: stream().foreachRDD(f),
    "DirectKafkaInputDStream.foreachBatch": lambda f: direct().foreachBatch(f),
    "StateSpec.function": StateSpec.function,
    "StreamingContext.transform": lambda f: of_context("transform")([stream()], f),
    "StreamingContext.fileStream(filter)": lambda f: of_context("fileStream")("/in", f),
    "KafkaUtils.createStream": lambda f: KafkaUtils.createStream(NO_CONTEXT, "z:2181", "group", {"t": 1}, BROKERS, valueDecoder=f),
    "KafkaUtils.createRDD": lambda f: KafkaUtils.createRDD(NO_CONTEXT, BROKERS, [], keyDecoder=f),
    "KafkaUtils.createDirectStream(keyDecoder)": lambda f: direct(keyDecoder=f),
    "KafkaUtils.createDirectStream(valueDecoder)": lambda f: direct(valueDecoder=f),
    "KafkaUtils.createDirectStream(messageHandler)": lambda f: direct(messageHandler=f),
}
YIELD: dict[str, Callable[[Any], Any]] = {
    "DStream.flatMap": lambda f: stream().flatMap(f),
    "DStream.mapPartitions": lambda f: stream().mapPartitions(f),
    "DStream.mapPartitionsWithIndex": lambda f: stream().mapPartitionsWithIndex(f),
    "DStream.flatMapValues": lambda f: stream().flatMapValues(f),
}
YIELD_ON_A_CONTEXT: dict[str, Callable[[Any], Any]] = {
    "StreamingContext.fileStream(reader)": lambda f: of_context("fileStream")("/in", reader=f),
    "StreamingContext.socketStream": lambda f: of_context("socketStream")("host", 1, f),
}


@pytest.mark.parametrize("given", GENERATORS)
@pytest.mark.parametrize("taker", RETURN)
def test_a_generator_function_is_refused_where_nobody_iterates_over_its_results(taker: str, given: str) -> None:
    with pytest.raises(TypeError, match="is a generator function, which nobody iterates over: a call runs nothing of its body"):
        RETURN[taker](GENERATORS[given])


@pytest.mark.parametrize("given", GENERATORS)
@pytest.mark.parametrize("taker", YIELD)
def test_a_generator_function_is_taken_where_one_record_may_become_many(taker: str, given: str) -> None:
    assert isinstance(YIELD[taker](GENERATORS[given]), DStream)


@pytest.mark.parametrize("given", ASYNC)
@pytest.mark.parametrize("taker", RETURN | YIELD | YIELD_ON_A_CONTEXT)
def test_an_async_function_is_refused_everywhere(taker: str, given: str) -> None:
    with pytest.raises(TypeError, match="is an async function, which nobody awaits: a call runs nothing of its body"):
        (RETURN | YIELD | YIELD_ON_A_CONTEXT)[taker](ASYNC[given])


def test_a_decorator_may_run_the_generator_function_that_it_wraps() -> None:
    @wraps(yields)
    def listed(*given: Any) -> list[Any]:
        return list(yields(*given))

    assert isinstance(stream().map(listed).map(Seconds).map(operator.itemgetter(0)), DStream)


def test_a_call_with_too_many_arguments_is_refused_in_pythons_words() -> None:
    with pytest.raises(TypeError, match=r"foreachRDD\(\) takes 2 positional arguments but 3 were given"):
        stream().foreachRDD(print, 3)


@pytest.mark.parametrize("owner", [DStream, StreamingContext])
def test_every_function_that_an_operator_takes_is_in_these_tables(owner: type) -> None:
    tables = RETURN | YIELD | YIELD_ON_A_CONTEXT
    for name, method in vars(owner).items():
        if name.startswith("_") or not callable(method):
            continue
        takes = [p.name for p in signature(method).parameters.values() if "Callable[" in str(p.annotation)]
        for parameter in takes:
            known = f"{owner.__name__}.{name}" if len(takes) == 1 else f"{owner.__name__}.{name}({parameter})"
            assert known in tables, known
