"""The mistakes of a newcomer, each made as a user makes it: what is shown, how soon, in how few lines; and nothing is lost by any of them.

`kstream run` and `python` are run in a terminal's way, and every line of standard output and error counts, Spark's own included.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from integration.kafka_broker import Broker
from integration.terminal import MOST_LINES, Mistake, Terminal
from kstream.cli.exit_codes import RunCode

OF_SPARK = "Setting default log level"
"""A line of every JVM that Spark starts."""

CALLS = """
import sys, traceback
import jobs
from kstream import StreamingContext
from kstream_kafka import KafkaUtils

ssc = jobs.context()
lines = KafkaUtils.createDirectStream(ssc, [jobs.os.environ["TOPIC"]], jobs.PARAMS)
pairs = lines.mapValues(int)
print("-- next", file=sys.stderr, flush=True)


def stop(rdd):
    ssc.stop(stopSparkContext=False, stopGraceFully=True)


for mistake in [
    lambda: lines.foreachRDD(print(end="")),
    lambda: lines.map(None),
    lambda: pairs.reduceByKeyAndWindow(max, 10, 2),
    lambda: pairs.window(0.7),
    lambda: pairs.window("10s"),
    lambda: pairs.mapWithState(len),
    lambda: pairs.join(ssc.sparkContext.parallelize([(None, 1)])),
    lambda: KafkaUtils.createDirectStream(ssc, ["t"], {**jobs.PARAMS, "auto.ofset.reset": "smallest"}),
    lambda: KafkaUtils.createDirectStream(ssc, ["t"], {**jobs.PARAMS, "value.deserializer": "io.confluent.KafkaAvroDeserializer"}),
    lambda: lines.foreachRDD(stop),
    lambda: ssc.start(),
    lambda: ssc.start(),
    lambda: lines.count(),
    lambda: ssc.awaitTermination(60),
    lambda: ssc.start(),
    lambda: StreamingContext(ssc.sparkContext, 1).start(),
]:
    try:
        mistake()
    except Exception:
        traceback.print_exc()
    print("-- next", file=sys.stderr, flush=True)
"""
SAID = [
    OF_SPARK,
    "func must be a function of (rdd) or (time, rdd), it is None. Give the function itself, not the result of a call",
    "map: f must be a function, it is None.",
    "invFunc must be a function or None, it is 10. The order is reduceByKeyAndWindow(func, invFunc, windowDuration, slideDuration)",
    "(700 ms) must be a positive multiple of the slide duration of its parent (500 ms): give 0.5 or 1 seconds",
    "'10s' is not a number of seconds: give a number, or a Duration",
    "Give StateSpec.function(your function)",
    "is no DStream but of type RDD. Use transform to combine each batch with an RDD",
    "'auto.ofset.reset' is unknown to the Java client and to librdkafka. Did you mean 'auto.offset.reset'?",
    "names io.confluent.KafkaAvroDeserializer, a Java class that Python workers cannot call. Leave it out and give valueDecoder",
    "",
    "only warnings are shown here: kstream.log()",
    "StreamingContext has already been started",
    "adding new inputs, transformations and outputs after starting a context is not supported",
    "",
    "StreamingContext has already been stopped, it cannot be started",
    "No output operations registered, so nothing to execute (try pprint or foreachRDD)",
]
"""What each of CALLS shows; "" is nothing at all."""


def of_setup(
    name: str, signal: str, code: int | None, seconds: float, before_spark: bool = True, checkpoint: str = "checkpoint"
) -> Mistake:
    return Mistake(name, (f"jobs.py:{name}", "--checkpoint", checkpoint), signal, code, seconds, before_spark)


OF_THE_LOOP = 3
"""Lines of a traceback that come of the loop in CALLS: a user writes the call by itself."""
AT_ONCE = 30
"""Seconds on a machine that is busy with other tests; alone it is 3."""
MISTAKES = [
    of_setup("dynamic_allocation", r"dynamicAllocation\.enabled is true, but in local mode .* the driver is the only executor", 2, AT_ONCE),
    of_setup("no_duration", r"spark\.streaming\.blockInterval is 'soon', which is not a ms", 2, AT_ONCE),
    of_setup("no_interval", r"batchDuration must be above zero, it is 0 ms \(\S+jobs\.py, line \d+\)", 2, AT_ONCE),
    of_setup("interval_as_text", r"'1s' is not a number of seconds: give a number, or a Duration \(\S+jobs\.py, line \d+\)", 2, AT_ONCE),
    of_setup("no_return", r"setup must return the StreamingContext it has made, it returned NoneType", 2, AT_ONCE),
    of_setup("missing_variable", r"in connect\n    return os\.environ\[.*\n(.*\n)*.*KeyError: 'DB_URL'", None, AT_ONCE),
    of_setup("no_such_function", r"jobs\.py has no function 'no_such_function'", 2, AT_ONCE),
    Mistake("no such file", ("jbos.py:orders", "--checkpoint", "checkpoint"), r"there is no file jbos\.py", 2, AT_ONCE),
    of_setup("orders", r"/proc/nope/checkpoint", None, AT_ONCE, checkpoint="/proc/nope/checkpoint"),
    of_setup("wrong_topic", r"Kafka knows no topic 't-\w+' .* Did you mean 't-\w+'\?", 2, 90, before_spark=False),
    of_setup("wrong_broker", r"No Kafka broker of 127\.0\.0\.1:9 answered within 15000 ms\..*refused", None, 120, before_spark=False),
]


@pytest.fixture(scope="module")
def terminal(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One folder and one checkpoint for all mistakes. The topic has 100 records."""
    kafka.create_topic("t-mistakes", 1)
    kafka.create_topic("t-returns-of-others", 1)
    kafka.produce("t-mistakes", ((None, str(number)) for number in range(100)))
    yield Terminal(tmp_path_factory.mktemp("mistakes"), kafka, "t-mistakes", "t-returns-of-others")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_one_clear_signal_in_few_lines(terminal: Terminal, mistake: Mistake) -> None:
    running = terminal.run(mistake)
    try:
        running.shows(mistake.signal, mistake.seconds)
        code = running.end(None if mistake.code is not None else signal.SIGINT)
    finally:
        running.kill()
    assert len(running.output.splitlines()) <= MOST_LINES, running.output
    assert code == (RunCode.INTERRUPTED if mistake.code is None else mistake.code), running.output
    assert (OF_SPARK not in running.output) is mistake.before_spark, running.output


@pytest.mark.timeout(200)
def test_calls_that_cannot_work_are_refused_where_they_are_written(terminal: Terminal) -> None:
    (terminal.folder / "calls.py").write_text(CALLS)
    running = terminal.start("calls.py")
    try:
        assert running.wait_for(lambda: running.process.poll() is not None, 150) and running.end() == 0
    finally:
        running.kill()
    shown = running.output.split("-- next\n")
    assert len(shown) == len(SAID) + 1
    of_spark = len(shown[0].splitlines())
    assert [text for text in shown if len(text.splitlines()) - OF_THE_LOOP > MOST_LINES - of_spark] == []
    assert [(said, text) for said, text in zip(SAID, shown, strict=False) if said not in text or (text and not said)] == []
    places = [[line for line in text.splitlines() if line.startswith("  File ")] for text in shown if "Traceback" in text]
    assert len(places) == 12 and all("calls.py" in place[-2] and "calls.py" not in place[-1] for place in places), running.output


@pytest.mark.timeout(300)
def test_after_all_these_mistakes_nothing_is_lost_and_other_drivers_are_told_apart(terminal: Terminal) -> None:
    """On the checkpoint of all mistakes the job reads all records, once. Then another job, and a second driver of this one, come to it."""
    first = terminal.start("-m", "kstream.cli", "run", "jobs.py:orders", "--checkpoint", "checkpoint", "--log-level", "WARNING")
    second = None
    try:
        first.shows(r"maxRatePerPartiton is unknown and has no effect\. Did you mean 'spark\.streaming\.kafka\.maxRatePerPartition'\?", 90)
        first.wait_for(lambda: len(terminal.records()) == 100, 120)
        other = terminal.run(of_setup("returns", "", 4, 90))
        other.shows(r"seems to be the checkpoint of another job|has offsets of", 90)
        assert other.end() == RunCode.REFUSED and len(other.output.splitlines()) <= MOST_LINES, other.output
        assert first.process.poll() is None, "a refused start fences nobody"
        second = terminal.start("-m", "kstream.cli", "run", "jobs.py:orders", "--checkpoint", "checkpoint", "--log-level", "WARNING")
        first.shows(r"another driver has taken \S+ \(epoch \d+, this one has \d+\).*Stop one of the two", 120)
        assert first.end() == RunCode.FENCED and len(first.output.splitlines()) <= MOST_LINES, first.output
        assert second.process.poll() is None and second.end(signal.SIGTERM) in (RunCode.ENDED, RunCode.TERMINATED), second.output
    finally:
        first.kill()
        if second is not None:
            second.kill()
    assert terminal.records() == list(range(100))
    plan = max((terminal.folder / "checkpoint" / "plans").iterdir())
    plan.write_bytes(plan.read_bytes()[:-9] + b"?" + plan.read_bytes()[-8:])
    damaged = terminal.run(of_setup("orders", "", 4, AT_ONCE))
    damaged.shows(rf"{plan.name} is damaged .*--forget-batch", AT_ONCE)
    assert damaged.end() == RunCode.REFUSED and len(damaged.output.splitlines()) <= MOST_LINES and OF_SPARK not in damaged.output
