"""OutputOperations: the operations of a stream that end in a job: `foreachRDD`, `saveToKafka` and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstream import connectors
from kstream.batch_time import BatchTime, Time
from kstream.dstream import rdd_functions as fn
from kstream.dstream.arguments import with_batch_time
from kstream.dstream.base import DStreamBase, T_co
from kstream.dstream.recipe import on_workers, recorded
from kstream.dstream.transformed_dstreams import ForEachDStream, RecordDStream
from kstream.output import Output

if TYPE_CHECKING:
    from pyspark import RDD


class OutputOperations(DStreamBase[T_co]):
    """The output operations of a stream. DStream adds the operators that make streams."""

    @recorded
    def foreachRDD(self, func: Callable[[RDD[T_co]], Any] | Callable[[BatchTime, RDD[T_co]], Any] | Output) -> None:
        """Run a function on the RDD of each batch, in a job thread: an output operation.

            stream.foreachRDD(lambda time, rdd: write(time.milliseconds, rdd.collect()))

        Args:
            func: func(rdd) or func(time, rdd), on the driver. `time` is a BatchTime: a datetime in local time without a zone, as in
                pyspark, with `milliseconds`. Use `time.milliseconds` as the key of idempotent writes: local time repeats when clocks are
                set back. An error fails the batch, and so does the return of a generator, a coroutine, a `map` or a `filter`.
                Or an output such as `kstream.sinks.once(…)`.

        Raises:
            TypeError: `func` takes neither form, or is a generator or coroutine function.
        """
        self._output("foreachRDD", func if isinstance(func, Output) else with_batch_time(func, 1))

    @recorded
    def pprint(self, num: int = 10) -> None:
        """Print the first `num` records of each batch, in pyspark's form: an output operation."""
        self._output("pprint", lambda time, rdd: fn.print_first(time.to_datetime(), rdd, num), own=True)

    @recorded
    def print(self, num: int = 10) -> None:
        """Do the same as `pprint`."""
        self.pprint(num)

    @recorded
    def saveAsTextFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Write the records of each batch as text, a file a partition: an output operation.

        A batch that runs again after a restart writes the same files again.

        Args:
            prefix: a path or URL as Hadoop takes it. The directory of a batch is `prefix-<batch time in ms>[.suffix]`.
            suffix: the end of the directory's name.
        """
        self._output("saveAsTextFiles", lambda time, rdd: rdd.saveAsTextFile(fn.file_name(prefix, suffix, time.milliseconds)), own=True)

    @recorded
    @on_workers("key", "value", "headers", "partition")
    def saveToKafka(
        self,
        topic: str | None,
        kafkaParams: Mapping[str, Any],
        *,
        key: Callable[[T_co], bytes | str | None] | None = None,
        value: Callable[[T_co], bytes | str | None] | None = None,
        headers: Callable[[T_co], Sequence[tuple[str, bytes | None]]] | None = None,
        partition: Callable[[T_co], int | None] | None = None,
        delivery: str = "exactly-once",
        name: str | None = None,
        prefix: str = "kstream",
        outputChanged: str = "fail",
        audit: bool = True,
    ) -> None:
        """Write each record to Kafka, exactly once by default, however often a batch runs: an output operation.

            counts.saveToKafka("totals", {"bootstrap.servers": "localhost:9092"}, key=lambda kv: kv[0], value=lambda kv: str(kv[1]))

        Exactly once, each partition of a batch is one transaction. It has the records and a receipt: a record of topic `<prefix>-receipts`
        that names the batch. A batch that runs again writes only the partitions that have no receipt. Who reads the topic needs
        `isolation.level=read_committed`. The job needs a checkpoint directory. Batches are written in order.

        Args:
            topic: the topic; None if each record is a `kstream_kafka.ProducerRecord`, which names its own.
            kafkaParams: parameters by the Java client's or librdkafka's names. `bootstrap.servers` is required.
            key: key(record) returns the key: bytes, text or None. By default that of a pair (key, value), else None.
            value: value(record) returns the value. By default that of a pair (key, value), else the record itself.
            headers: headers(record) returns pairs of name and bytes.
            partition: partition(record) returns the partition; None for that of the key, as the Java client chooses it.
            delivery: `exactly-once`; or `at-least-once`, by an idempotent producer: then a task that runs again writes its records again,
                no checkpoint directory is needed, and batches do not wait for each other.
            name: the name of the output; by default `kafka` with the topic. Receipts belong to it: keep it when the code changes.
            prefix: begins the names of the topics of receipts and audit, and the transactional ids.
            outputChanged: what happens to a half-written batch that has other keys, or another number of records, when it is computed
                again behind a shuffle. `fail` fails the batch. `keep` keeps what is written, and writes the other partitions as they are.
            audit: whether each batch leaves an entry in topic `<prefix>-audit`, from which `kstream audit` proves what was written.

        Raises:
            TypeError: an argument is no function, or a generator function.
            ValueError: a name cannot be used.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
        """
        functions = {"key": key, "value": value, "headers": headers, "partition": partition}
        encode, output, secrets = connectors.load("kafka").kafka_output(
            topic, kafkaParams, functions, delivery, name, prefix, outputChanged, audit
        )
        if secrets:
            words = f"Kafka parameters that may hold a secret are never stored, and saveToKafka has {', '.join(secrets)}"
            self._recorder.why_not = self._recorder.why_not or words
        encoded = RecordDStream(self._node, "saveToKafka", encode, lambda rdd: rdd.map(encode), preserves=True)
        self._node.ssc.graph.add_output_stream(ForEachDStream(encoded, output, "saveToKafka", own=True))

    def _output(self, name: str, func: Callable[[Time, RDD[Any]], object] | Output, *, own: bool = False) -> None:
        """Add an output operation. `own`: `func` is a function of kstream; see `ForEachDStream`."""
        self._node.ssc.graph.add_output_stream(ForEachDStream(self._node, func, name, own=own))
