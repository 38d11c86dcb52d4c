"""`kstream doctor`: whether a job can run here, and what will hurt it. Each check that does not pass says what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kstream.checkpoint import LogContents, names, read_log
from kstream.checkpoint.reader import has_checkpoint
from kstream.cli.checks import driver_clock_check, java_check, store_checks, versions_check, versions_here
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import Connections, connection_options, newest_plans, tools_of
from kstream.cli.spark_checks import executors_checks
from kstream.cli.submit_options import submit_options
from kstream.cli.terminal import clear_errors, count, echo, one_line
from kstream.connectors import Finding
from kstream.errors import KStreamError
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.spark.executor_questions import ExecutorQuestions, StreamConnection, questions_about
from kstream.spark.submit_args import SUBMIT_ARGS, SubmitOptions, given_names
from kstream.storage import FileStore, LocalFileStore


@click.command("doctor")
@click.argument("path", required=False)
@click.option("--spark", is_flag=True, help="Also start Spark, and look at the executors by one small job.")
@submit_options
@connection_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def doctor_command(
    path: str | None,
    spark: bool,
    master: str | None,
    py_files: str | None,
    archives: str | None,
    files: str | None,
    bootstrap: str | None,
    params: tuple[str, ...],
    params_file: str | None,
    as_json: bool,
) -> None:
    """Check what a job needs: Java, versions, the store of its checkpoint, clocks, disk, brokers; with --spark also the executors.

    PATH is a checkpoint, or where one will be. The store is tested with a file that is deleted again; a living driver is not disturbed.
    With --spark each executor tells its versions, and whether it reaches PATH and the brokers. Give the options of `kstream run` then.

    Exit code 0: all is well. 1: a check has failed or warns; its line says what to do. 3: the checkpoint cannot be read.
    """
    with clear_errors(code=ReadingCode.UNREADABLE):
        submit = SubmitOptions.of(master, py_files, archives, files)
        submit.check()
        checks = _checks(path, submit if spark else None, lambda store: Connections(store, bootstrap, params, params_file))
    code = code_of(checks)
    echo(json.dumps(as_data(checks, code), indent=2) if as_json else "\n".join(in_words(checks)))
    raise SystemExit(int(code))


def _checks(path: str | None, submit: SubmitOptions | None, connections: Callable[[FileStore], Connections]) -> list[Finding]:
    """Run all checks. Blocks.

    Args:
        path: the checkpoint; None for none.
        submit: the options for Spark; None not to start it.
        connections: gives the connection parameters of a checkpoint's streams.

    Raises:
        KStreamError: the store cannot be opened or read.
    """
    here = versions_here()
    checks = [java_check(), versions_check(here)]
    store, streams = None, list[StreamConnection]()
    if path is None:
        checks.append(Finding("checkpoint", "not checked", "without PATH"))
    else:
        store = open_checkpoint(path)
        there = has_checkpoint(store)
        checks.append(Finding("checkpoint", "ok", store.url if there else f"{store.url} has none yet: no stream has started there"))
        checks += store_checks(store)
        if there:
            checks.append(driver_clock_check(store))
            of_streams, streams = _streams(read_log(store), connections(store))
            checks += of_streams
    if submit is None:
        return [*checks, Finding("executors", "not checked", "without --spark")]
    if any(check.verdict == "failed" for check in checks[:2]):
        return [*checks, Finding("executors", "not checked", "Spark cannot start without Java and pyspark")]
    return [*checks, *_with_spark(submit, lambda sc: _on_executors(here, sc, store, streams))]


def _on_executors(here: Mapping[str, str], sc: Any, store: FileStore | None, streams: Sequence[StreamConnection]) -> list[Finding]:
    if store is None:
        return executors_checks(here, sc)
    if isinstance(store, LocalFileStore) and not Path(store.url).is_dir():
        unmade = Finding("executors, checkpoint", "not checked", f"{store.url} does not exist yet: the first start makes it")
        return [*executors_checks(here, sc, ExecutorQuestions(streams=streams)), unmade]
    with questions_about(store, streams) as questions:
        return executors_checks(here, sc, questions, has_state=bool(store.list(names.STATE)))


def _streams(contents: LogContents, connections: Connections) -> tuple[list[Finding], list[StreamConnection]]:
    """Look at the brokers of each stream whose connector can. Blocks.

    Returns:
        The checks, and the streams whose brokers can be asked.
    """
    checks, streams = list[Finding](), list[StreamConnection]()
    for number, data in newest_plans(contents).items():
        connector = tools_of(data)
        if connector is None:
            continue
        try:
            parameters = connections.parameters_of(number, connector)
            findings = connector.examine(parameters, data)
        except KStreamError as e:  # parameters that are not stored, or a tool that is not offered
            checks.append(Finding(f"stream {number}", "not checked", one_line(e)))
            continue
        streams.append(StreamConnection(number, connector, parameters, data))
        checks += [replace(found, name=f"stream {number}, {found.name}", seen=" ".join(found.seen.split())) for found in findings]
    return checks, streams


def _with_spark(submit: SubmitOptions, look: Callable[[Any], list[Finding]]) -> list[Finding]:
    """Start Spark as `kstream run` does, with the settings of spark-submit and spark-defaults.conf, for the call of `look`. Blocks."""
    from pyspark import SparkConf

    from kstream.cli.cluster_start import ClusterStart
    from kstream.spark.spark_context import make_spark_context

    start = ClusterStart.prepare(submit)
    given = given_names(os.environ.get(SUBMIT_ARGS, ""), os.environ)
    conf = SparkConf()  # without a JVM it knows nothing of what was given
    for key, value in (("spark.app.name", "kstream doctor"), ("spark.master", "local[2]"), ("spark.ui.showConsoleProgress", "false")):
        if key not in given:
            conf.setIfMissing(key, value)
    try:
        sc = make_spark_context(conf)
    except Exception as e:  # py4j's and Spark's errors have no common type
        return [Finding("executors", "failed", f"Spark does not start: {one_line(e)}", "Read Spark's log above.")]
    try:
        start.settle_python(sc)
        return look(sc)
    finally:
        sc.stop()


# -- for people and as JSON


def code_of(checks: Sequence[Finding]) -> ReadingCode:
    """Return the exit code. A check that was not made counts as passed. Pure."""
    bad = any(check.verdict in ("warning", "failed") for check in checks)
    return ReadingCode.BEHIND if bad else ReadingCode.WELL


def as_data(checks: Sequence[Finding], code: ReadingCode) -> dict[str, Any]:
    rows = [{"name": c.name, "verdict": c.verdict, "seen": c.seen, "remedy": c.remedy or None} for c in checks]
    return {"exit_code": int(code), "checks": rows}


def in_words(checks: Sequence[Finding]) -> list[str]:
    """Return a line for each check, one for each remedy, and a sentence about all."""
    lines: list[str] = []
    for check in checks:
        lines.append(f"{check.verdict + ':':<12} {check.name}: {check.seen}")
        if check.remedy:
            lines.append(f"{'':<12} {check.remedy}")
    failed = sum(check.verdict == "failed" for check in checks)
    warned = sum(check.verdict == "warning" for check in checks)
    left_out = ", ".join(check.name for check in checks if check.verdict == "not checked")
    last = f"{count(failed, 'check')} failed, {count(warned, 'warning')}" if failed or warned else "all is well"
    return [*lines, f"{last}; not checked: {left_out}" if left_out else last]
