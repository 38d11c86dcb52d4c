"""`kstream sink`: what outputs have written to Kafka exactly once, and what a person can do about it. Needs no Java."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, TypeVar

import click
from rich.markup import escape
from rich.table import Table

from kstream.cli.exit_codes import ReadingCode
from kstream.cli.terminal import clear_errors, count, echo, table_console
from kstream.errors import ConfigurationError
from kstream.printable import printable
from kstream_kafka.client.record_producer import RecordProducer, store
from kstream_kafka.sink.query_batches import query_id
from kstream_kafka.sink.query_receipt import QueryReceipt
from kstream_kafka.sink.receipt import FENCES, Digests, KafkaReceipt, acceptance_key, encode_acceptance, sum_of
from kstream_kafka.sink.receipts import transactional_id
from kstream_kafka.sink.receipts_topic import receipts_topic
from kstream_kafka.sink.transactional_ids import take_ids
from kstream_kafka.tools.sink_reading import KnownOutput, SinkReading, chosen
from kstream_kafka.tools.topic_options import connection_of, of_brokers

Command = TypeVar("Command", bound=Callable[..., Any])


def prefix_option(command: Command) -> Command:
    """Add the option `--prefix`, and those by which the brokers are reached."""
    prefix = click.option("--prefix", default="kstream", show_default=True, help="That of saveToKafka.")
    return prefix(of_brokers(command))


def one_output(command: Command) -> Command:
    """Add the argument OUTPUT and the options that say which output is meant, and where."""
    job = click.option("--job", help="The job, or the beginning of its id, if several have an output of this name.")
    return click.argument("output", required=False)(job(prefix_option(command)))


@click.group("sink")
def sink_command() -> None:
    """Outputs that write to Kafka exactly once: their newest batches, open transactions, half-written batches.

    The output of a query of Structured Streaming is called query, and its job is the id of the query. The brokers are those of a stream of
    --checkpoint, or of --bootstrap. They are asked for the receipts, not the checkpoint.
    """


@sink_command.command("ls")
@prefix_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def ls_command(prefix: str, as_json: bool, **options: Any) -> None:
    """List the outputs, with the newest batch of each."""
    with clear_errors(code=ReadingCode.UNREADABLE):
        known = SinkReading(connection_of(**options), prefix).outputs().values()
    rows = [_row(output) for output in known if isinstance(output, KnownOutput)]
    queries = [receipt for receipt in known if isinstance(receipt, QueryReceipt)]
    if as_json:
        echo(json.dumps({"outputs": rows, "queries": [_query_data(receipt) for receipt in queries]}))
        return
    if rows or not queries:
        _print_outputs(rows)
    if queries:
        _print_queries(queries)


def _print_outputs(rows: Iterable[dict[str, Any]]) -> None:
    table = Table("output", "job", "newest batch", "batch (ms)", "receipts", "records", "epoch")
    for row in rows:
        time_ms = row["batch"]
        moment = "" if time_ms is None else datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
        receipts = "" if time_ms is None else f"{row['receipts']} of {row['partitions']}"
        cells = (row["output"], row["job"], moment, _text(time_ms), receipts, str(row["records"]), _text(row["epoch"]))
        table.add_row(*(escape(printable(cell)) for cell in cells))
    table_console().print(table)


def _print_queries(queries: Iterable[QueryReceipt]) -> None:
    table = Table("query", "newest batch", "records", "topics")
    for receipt in queries:
        cells = (receipt.query, str(receipt.batch), str(receipt.num_records), ", ".join(sorted(receipt.digests)))
        table.add_row(*(escape(printable(cell)) for cell in cells))
    table_console().print(table)


@sink_command.command("show")
@one_output
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show_command(output: str | None, job: str | None, prefix: str, as_json: bool, **options: Any) -> None:
    """Show the newest receipt of each partition of an output, or the receipt of a query."""
    with clear_errors(code=ReadingCode.UNREADABLE):
        found = _found(SinkReading(connection_of(**options), prefix), job, output)
    if isinstance(found, QueryReceipt):
        echo(json.dumps(_query_data(found)) if as_json else "\n".join(_query_lines(found)))
        return
    receipts = [receipt for _, receipt in sorted(found.receipts.items())]
    if as_json:
        gone = [{"batch": ms, "records": batch.num_records} for ms, batch in sorted(found.given_up.items())]
        each = [_receipt_data(receipt) for receipt in receipts]
        echo(json.dumps({**_row(found), "given up": gone, "receipt of each partition": each}))
        return
    for line in _lines(found):
        echo(line)
    table = Table("partition", "of", "batch (ms)", "records", "bytes", "topics", "epoch")
    for one in receipts:
        size = sum(digest.bytes for digest in one.digests.values())
        numbers = (one.partition, one.num_partitions, one.time_ms, one.num_records, size)
        table.add_row(*map(str, numbers), escape(printable(", ".join(sorted(one.digests)))), str(one.epoch))
    table_console().print(table)


@sink_command.command("abort")
@one_output
@click.option("--partitions", type=click.IntRange(min=1), help="How many partitions the batches have, if no receipt tells.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def abort_command(output: str | None, job: str | None, prefix: str, partitions: int | None, yes: bool, **options: Any) -> None:
    """End the open transactions of an output whose driver does not come back.

    Readers of committed records wait for a transaction that is open, until its time-out. A driver that runs loses its transactions, too:
    its batch is tried again.
    """
    with clear_errors():
        reading = SinkReading(connection_of(**options), prefix)
        found = _found(reading, job, output)
        if isinstance(found, QueryReceipt):
            name, identities = f"query {found.query}", [query_id(prefix, found.query)]
        else:
            name, identities = found.name, _identities(prefix, found, partitions)
        if not yes:
            click.confirm(f"End the open transactions of {printable(name)}, {count(len(identities), 'transactional id')}?", abort=True)
        take_ids(reading.params, identities, receipts_topic(prefix))
    echo(f"{count(len(identities), 'transactional id')} of {printable(name)} taken: their transactions have ended")


def _identities(prefix: str, output: KnownOutput, partitions: int | None) -> list[str]:
    """Return the transactional ids of an output. ConfigurationError if nobody knows how many there are."""
    number = partitions or output.num_ids
    if not number:
        words = f"no receipt tells how many partitions {output.name} has: give --partitions"
        raise ConfigurationError(words, key="--partitions", value=None)
    return [transactional_id(prefix, output.job, output.name, partition) for partition in range(number)]


@sink_command.command("accept")
@one_output
@click.option("--batch", "time_ms", type=int, required=True, metavar="MS", help="The half-written batch.")
def accept_command(output: str | None, job: str | None, prefix: str, time_ms: int, **options: Any) -> None:
    """Let a half-written batch end, though it has other records now than those that are written.

    What is written stands. The next try of the batch writes the partitions that have no receipt, as they are now. Records that have moved
    between partitions are lost or are there twice. The entry of the batch for the audit names the partitions.
    """
    with clear_errors():
        reading = SinkReading(connection_of(**options), prefix)
        found = _found(reading, job, output)
        if isinstance(found, QueryReceipt):
            words = f"query {found.query} writes each batch as a whole. Its option outputChanged=keep keeps what is written"
            raise ConfigurationError(words, key="OUTPUT", value=output)
        newest = found.newest
        if not newest or newest[0].time_ms != time_ms:
            there = f"its newest batch is {newest[0].time_ms} ms" if newest else "it has no receipt"
            words = f"{found.name} has not written a part of batch {time_ms} ms last: {there}"
            raise ConfigurationError(words, key="--batch", value=time_ms)
        producer, key = RecordProducer(reading.params.producer()), acceptance_key(found.job, found.name)
        store(producer, receipts_topic(prefix), key, encode_acceptance(time_ms), {FENCES}, "the acceptance was not stored")
    stand = f"{len(newest)} of {count(newest[0].num_partitions, 'partition')} stand"
    echo(f"batch {time_ms} ms of {printable(found.name)} is accepted: {stand}, the rest is written by the next try")


def _found(reading: SinkReading, job: str | None, output: str | None) -> KnownOutput | QueryReceipt:
    """Return the one output that the options mean; of a query its receipt. Blocks on the brokers. Errors as `outputs` and `chosen`."""
    outputs = reading.outputs()
    return outputs[chosen(outputs, job, output)]


def _row(output: KnownOutput) -> dict[str, Any]:
    """Return an output with its newest batch, as JSON has it, and as the table of `ls` shows it."""
    newest = output.newest
    return {
        "output": output.name,
        "job": output.job,
        "batch": newest[0].time_ms if newest else None,
        "receipts": len(newest),
        "partitions": newest[0].num_partitions if newest else None,
        "records": sum(receipt.num_records for receipt in newest),
        "epoch": output.fence.epoch if output.fence else None,
        "accepted": output.accepted_ms,
    }


def _lines(output: KnownOutput) -> list[str]:
    """Return the sentences about an output: its driver, its newest batch, what was accepted."""
    fence, newest = output.fence, output.newest
    lines = [f"{printable(output.name)} of job {printable(output.job)}"]
    if fence is not None:
        lines.append(f"  the driver of epoch {fence.epoch} may write")
    if newest:
        digests = sum_of(receipt.digests for receipt in newest)
        topics = ", ".join(f"{printable(topic)}: {count(digest.records, 'record')}" for topic, digest in sorted(digests.items()))
        parts = f"{len(newest)} of {count(newest[0].num_partitions, 'partition')} have a receipt, an empty one needs none"
        lines.append(f"  newest batch {newest[0].time_ms} ms: {topics}; {parts}")
    for batch in (batch for _, batch in sorted(output.given_up.items())):
        lines.append(f"  batch {batch.time_ms} ms was given up: {count(batch.num_records, 'record')} of it are written")
    if output.accepted_ms is not None:
        lines.append(f"  batch {output.accepted_ms} ms was accepted as it was written")
    return lines


def _receipt_data(receipt: KafkaReceipt) -> dict[str, Any]:
    names = ("partition", "num_partitions", "time_ms", "nonce", "num_records", "epoch", "writer")
    return {**{name: getattr(receipt, name) for name in names}, "topics": _digests_data(receipt.digests)}


def _query_data(receipt: QueryReceipt) -> dict[str, Any]:
    names = ("query", "batch", "num_records")
    return {**{name: getattr(receipt, name) for name in names}, "topics": _digests_data(receipt.digests)}


def _query_lines(receipt: QueryReceipt) -> list[str]:
    """Return the sentences about the newest batch of a query."""
    lines = [f"query {printable(receipt.query)}", f"  newest batch {receipt.batch}: {count(receipt.num_records, 'record')}"]
    for topic, digest in sorted(receipt.digests.items()):
        lines.append(f"  {printable(topic)}: {count(digest.records, 'record')}, {count(digest.bytes, 'byte')}")
    return lines


def _digests_data(digests: Digests) -> dict[str, Any]:
    return {topic: digest._asdict() for topic, digest in digests.items()}


def _text(value: int | None) -> str:
    return "" if value is None else str(value)
