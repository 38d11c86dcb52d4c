"""`kstream audit`: proves from Kafka alone what a job has written exactly once. Needs neither Java nor the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kstream.cli.exit_codes import ReadingCode
from kstream.cli.terminal import clear_errors, count, echo
from kstream.printable import printable
from kstream_kafka.sink.audit import AuditEntry
from kstream_kafka.sink.receipt import GivenUp
from kstream_kafka.tools.audit_check import (
    AuditFinding,
    AuditVerdict,
    batches_of,
    given_up_finding,
    input_findings,
    inputs_of,
    missed,
    topics_of,
    with_given_up,
)
from kstream_kafka.tools.sink_command import one_output
from kstream_kafka.tools.sink_reading import SinkReading, chosen
from kstream_kafka.tools.topic_options import connection_of

MOST = 20
"""The most findings that are printed as text."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit has found of one output.

    Attributes:
        job, output: which.
        name: of the output, for people.
        span: the batches with records, for people.
        batches: how many there are.
        first, last: the first and the last of them, in ms, or ids of a query; None without one.
        facts: sentences on what was compared.
        findings: what is not as it should be, or cannot be known.
        inputs_only: whether the output was not read.
    """

    job: str
    output: str
    name: str
    span: str
    batches: int
    first: int | None
    last: int | None
    facts: Sequence[str]
    findings: Sequence[AuditFinding]
    inputs_only: bool

    @property
    def verdict(self) -> AuditVerdict:
        """The worst of the findings: a difference that is known outweighs what cannot be known."""
        found = {finding.verdict for finding in self.findings}
        return next((verdict for verdict in (AuditVerdict.DIFFERS, AuditVerdict.NOT_PROVABLE) if verdict in found), AuditVerdict.PROVED)


@click.command("audit")
@one_output
@click.option("--inputs-only", is_flag=True, help="Do not read what was written.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def audit_command(output: str | None, job: str | None, prefix: str, inputs_only: bool, as_json: bool, **options: Any) -> None:
    """Prove what an output of saveToKafka, or a query, has written: from its audit topic, and from the topics that it has written.

    Each input offset must be in exactly one batch. Each batch must be in the output exactly once: its keys, its values and their number
    must be those of the receipts. The exit code is 0 if that is proved, and 1 if something differs. It is 3 if nobody can know: retention
    or compaction has removed records, or the topic was made anew.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        reading = SinkReading(connection_of(**options), prefix)
        entries = reading.entries()
        key = chosen(entries, job, output)
        shared = {topic for other, written in entries.items() if other != key for topic in topics_of(written)}
        report = audit_of_output(reading, *key, entries[key], shared, inputs_only, reading.given_up(*key))
    if as_json:
        echo(json.dumps(_data(report)))
    else:
        for line in _lines(report):
            echo(line)
    raise SystemExit(int(report.verdict))


def audit_of_output(
    reading: SinkReading,
    job: str,
    output: str,
    entries: Sequence[AuditEntry],
    shared: Collection[str],
    inputs_only: bool,
    given_up: Sequence[GivenUp] = (),
) -> AuditReport:
    """Audit one output: compare its entries with each other, and with what it has written. Blocks on the brokers.

    Args:
        reading: reads the topics that were written.
        job, output: which output.
        entries: those of the audit, in the order of the log.
        shared: the topics to which other outputs have written, too.
        inputs_only: whether the topics that were written are not read.
        given_up: the batches whose plans `--forget-batch` has set aside: no driver runs them.

    Raises:
        KafkaError: the brokers do not answer, or refuse this client.
    """
    batches, findings = batches_of(entries)
    gone = missed(batches, given_up)
    findings = [*findings, *map(given_up_finding, gone), *input_findings(batches, gone)]
    ranges = inputs_of(batches).items()
    facts = [f"input   {place}: each of the offsets {begin} to {end - 1} is in one batch" for place, (begin, end) in ranges]
    for topic in () if inputs_only else topics_of(batches):
        check, differences = reading.check(topic, with_given_up(batches, gone), topic in shared)
        findings += differences
        if check.first is not None and not differences:
            facts.append(f"output  {topic}: {count(check.num_records, 'record')} from batch {check.first} on, as the receipts say")
    real = [entry for entry in batches if entry.is_batch]
    if not real:
        findings.append(AuditFinding(AuditVerdict.NOT_PROVABLE, "no batch has an entry"))
    first, last = (real[0].time_ms, real[-1].time_ms) if real else (None, None)
    name = f"query {job}" if entries and entries[0].is_query else f"{output} of job {job}"
    span = count(len(real), "batch") + (f" with records, from {real[0].moment} to {real[-1].moment}" if real else "")
    return AuditReport(job, output, name, span, len(real), first, last, facts if not findings else [], findings, inputs_only)


def _lines(report: AuditReport) -> list[str]:
    """Return the report as lines for people. The last one is the verdict."""
    lines = [printable(f"{report.name}: {report.span}")]
    lines += [f"  {printable(fact)}" for fact in report.facts]
    lines += [f"  {printable(finding.words)}" for finding in report.findings[:MOST]]
    if len(report.findings) > MOST:
        lines.append(f"  and {len(report.findings) - MOST} more; --json has all")
    proved = "proved for the input" if report.inputs_only else "proved"
    words = {AuditVerdict.PROVED: proved, AuditVerdict.DIFFERS: "NOT exactly once", AuditVerdict.NOT_PROVABLE: "not provable"}
    return [*lines, words[report.verdict]]


def _data(report: AuditReport) -> dict[str, Any]:
    """Return the report as `--json` prints it."""
    return {
        "job": report.job,
        "output": report.output,
        "batches": report.batches,
        "first": report.first,
        "last": report.last,
        "verdict": report.verdict.word,
        "facts": list(report.facts),
        "findings": [{"verdict": found.verdict.word, "words": found.words} for found in report.findings],
    }
