"""`kstream doctor`: whether a job can run here, and what will hurt it. Each check that does not pass says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from kstream.checkpoint import LogContents, read_log
from kstream.checkpoint.reader import has_checkpoint
from kstream.cli.checks import Check, Verdict, driver_clock_check, java_check, store_checks, versions_check, versions_here
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import Connections, connection_options, newest_plans, tools_of
from kstream.cli.spark_checks import executors_checks
from kstream.cli.terminal import clear_errors, count, one_line
from kstream.errors import KStreamError
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.storage import FileStore


@click.command("doctor")
@click.argument("path", required=False)
@click.option("--spark", is_flag=True, help="Also start Spark, and look at the executors by one small job.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def doctor_command(
    path: str | None, spark: bool, bootstrap: str | None, params: tuple[str, ...], params_file: str | None, as_json: bool
) -> None:
    """Check what a job needs: Java, versions, the store of its checkpoint, clocks, disk, brokers; with --spark also the executors.

    PATH is a checkpoint, or where one will be. The store is tested with a file that is deleted again; a living driver is not disturbed.

    Exit code 0: all is well. 1: a check has failed or warns; its line says what to do. 3: the checkpoint cannot be read.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        checks = _checks(path, spark, lambda store: Connections(store, bootstrap, params, params_file))
    code = code_of(checks)
    click.echo(json.dumps(as_data(checks, code), indent=2) if as_json else "\n".join(in_words(checks)))
    raise SystemExit(int(code))


def _checks(path: str | None, spark: bool, connections: Callable[[FileStore], Connections]) -> list[Check]:
    """Run all checks. Blocks.

    Args:
        path: the checkpoint; None for none.
        spark: whether to start Spark.
        connections: gives the connection parameters of a checkpoint's streams.

    Raises:
        KStreamError: the store cannot be opened or read.
    """
    here = versions_here()
    checks = [java_check(), versions_check(here)]
    if path is not None:
        store = open_checkpoint(path)
        there = has_checkpoint(store)
        checks.append(Check("checkpoint", Verdict.OK, store.url if there else f"{store.url} has none yet: no stream has started there"))
        checks += store_checks(store)
        if there:
            checks.append(driver_clock_check(store))
            checks += _streams(read_log(store), connections(store))
    if not spark:
        return [*checks, Check("executors", Verdict.NOT_CHECKED, "without --spark")]
    if any(check.verdict is Verdict.FAILED for check in checks[:2]):
        return [*checks, Check("executors", Verdict.NOT_CHECKED, "Spark cannot start without Java and pyspark")]
    return [*checks, *_with_spark(lambda sc: executors_checks(here, sc))]


def _streams(contents: LogContents, connections: Connections) -> list[Check]:
    """Look at the brokers of each stream whose connector can. Blocks."""
    checks: list[Check] = []
    for number, data in newest_plans(contents).items():
        connector = tools_of(data)
        if connector is None:
            continue
        try:
            findings = connector.examine(connections.parameters_of(number, connector), data)
        except KStreamError as e:  # parameters that are not stored, or a tool that is not offered
            checks.append(Check(f"stream {number}", Verdict.NOT_CHECKED, one_line(e)))
            continue
        checks += [Check(f"stream {number}, {f.name}", Verdict(f.verdict), " ".join(f.seen.split()), f.remedy) for f in findings]
    return checks


def _with_spark(look: Callable[[Any], list[Check]]) -> list[Check]:
    """Start Spark as kstream does, with the settings of spark-submit and spark-defaults.conf, for the call of `look`. Blocks."""
    from pyspark import SparkConf

    from kstream.spark.spark_context import make_spark_context

    conf = SparkConf()
    for key, value in (("spark.app.name", "kstream doctor"), ("spark.master", "local[2]"), ("spark.ui.showConsoleProgress", "false")):
        conf.setIfMissing(key, value)
    try:
        sc = make_spark_context(conf)
    except Exception as e:  # py4j's and Spark's errors have no common type
        return [Check("executors", Verdict.FAILED, f"Spark does not start: {one_line(e)}", "Read Spark's log above.")]
    try:
        return look(sc)
    finally:
        sc.stop()


# -- for people and as JSON


def code_of(checks: Sequence[Check]) -> ReadingCode:
    """Return the exit code. A check that was not made counts as passed. Pure."""
    bad = any(check.verdict in (Verdict.WARNING, Verdict.FAILED) for check in checks)
    return ReadingCode.BEHIND if bad else ReadingCode.WELL


def as_data(checks: Sequence[Check], code: ReadingCode) -> dict[str, Any]:
    """Return the checks as JSON values."""
    rows = [{"name": c.name, "verdict": c.verdict.value, "seen": c.seen, "remedy": c.remedy or None} for c in checks]
    return {"exit_code": int(code), "checks": rows}


def in_words(checks: Sequence[Check]) -> list[str]:
    """Return a line for each check, one for each remedy, and a sentence about all."""
    lines: list[str] = []
    for check in checks:
        lines.append(f"{check.verdict.value + ':':<12} {check.name}: {check.seen}")
        if check.remedy:
            lines.append(f"{'':<12} {check.remedy}")
    failed = sum(check.verdict is Verdict.FAILED for check in checks)
    warned = sum(check.verdict is Verdict.WARNING for check in checks)
    last = f"{count(failed, 'check')} failed, {count(warned, 'warning')}" if failed or warned else "all is well, as far as it was checked"
    return [*lines, last]
