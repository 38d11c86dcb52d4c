"""`kstream run module:setup --checkpoint PATH`: a job from its checkpoint."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence

import click

from kstream.checkpoint.binding import DROPPED, INTERVAL, TOPICS, WINDOW
from kstream.cli.driver import run_driver
from kstream.cli.exit_codes import RunCode
from kstream.cli.job import check_job
from kstream.cli.submit_options import submit_options
from kstream.cli.supervised import join_supervisor
from kstream.cli.supervisor import Supervisor
from kstream.cli.terminal import echo, one_line, require_pyspark
from kstream.console import FORMATS, JSON, LEVELS, TEXT, log
from kstream.errors import ConfigurationError, MissingDependencyError
from kstream.spark.java import under_spark_submit
from kstream.spark.submit_args import SubmitOptions

logger = logging.getLogger(__name__)


@click.command("run")
@click.argument("job", metavar="MODULE:SETUP")
@click.option("--checkpoint", "path", required=True, metavar="PATH", help="The checkpoint of the stream; created if it does not exist.")
@click.option(
    "--forget-batch",
    type=int,
    metavar="MS",
    help="Set the plans of this batch time aside before the start, damaged or not. If its plan is missing, start without it.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="WORD",
    help="dropped:NAME forgets the offsets of a stream that the job no longer has. topics:NAME lets a stream read none of the topics that "
    "it has offsets of; those offsets are kept. NAME is the stream's name, else its number. interval:MS is --interval-changed-at MS. "
    "window:ID begins a window with an inverse anew, because its duration has changed; ID is that of its state, as the error names it. "
    "output:NAME lets pending batches end without an output that the job no longer has.",
)
@click.option(
    "--interval-changed-at",
    type=int,
    metavar="MS",
    help="Change the batch interval to that of the job. MS is the last batch of the checkpoint. Windows begin anew.",
)
@submit_options
@click.option("--no-restart", is_flag=True, help="Run the driver in this process, and do not start it again when it ends.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", help="Default INFO: a line for each batch.")
@click.option("--log-format", type=click.Choice(FORMATS), default=TEXT, help="text, or json: one JSON object a line.")
@click.option("--verbose", is_flag=True, help="Show tracebacks and the messages of client libraries, such as Kafka's.")
def run_command(
    job: str,
    path: str,
    forget_batch: int | None,
    allow: tuple[str, ...],
    interval_changed_at: int | None,
    master: str | None,
    py_files: str | None,
    archives: str | None,
    files: str | None,
    no_restart: bool,
    log_level: str,
    log_format: str,
    verbose: bool,
) -> None:
    """Run a streaming job until SIGTERM or Ctrl-C. The next start continues exactly where the job stopped.

    MODULE:SETUP names a function without arguments that returns a StreamingContext: `jobs.orders:setup`, or `job.py:setup` for a
    file. It is called at every start, unless the checkpoint holds a graph stored by recovery=graph.

    The driver is a process of its own. If a batch fails, or the driver is killed, the driver is started again after 1 s to 60 s. It is
    not started again if the job has ended, was stopped, or cannot work. Exit codes: 0 ended, 1 failed, 2 configuration, 3 import,
    4 refused by the checkpoint, 5 fenced, 6 failed batch, 7 lost JVM, 130 and 143 stopped by a signal, 137 killed.
    """
    log(log_level, log_format, verbose=verbose)
    tell = logger.error if log_format == JSON else _print_line
    supervisor = join_supervisor()
    allow = allow if interval_changed_at is None else (*allow, f"{INTERVAL}{interval_changed_at}")
    try:
        check_allowed(allow)
        submit = SubmitOptions.of(master, py_files, archives, files)
        submit.check()
        require_pyspark()
        check_job(job)
    except (ConfigurationError, MissingDependencyError) as e:
        tell(one_line(e))
        raise SystemExit(RunCode.CONFIGURATION) from None
    if supervisor is None and not no_restart and not under_spark_submit() and sys.platform != "win32":
        of_log = ["--log-level", log_level, "--log-format", log_format, *(["--verbose"] if verbose else [])]
        options = [*submit.words(), *of_log, *(part for word in allow for part in ("--allow", word))]
        page = f"kstream page {shlex.quote(path)}"
        supervisor_of_job = Supervisor(
            lambda number: command_of_driver(job, path, forget_batch if number == 0 else None, options), page=page
        )
        raise SystemExit(supervisor_of_job.run())
    end = run_driver(job, path, forget_batch, allow, verbose, submit, supervisor is not None)
    if end.traceback and not verbose and log_format != JSON:
        echo(end.traceback, err=True, nl=False)
    if supervisor is not None:
        supervisor.tell(end.reason)
    elif end.reason:
        tell(end.reason)
    raise SystemExit(int(end.code))


def _print_line(reason: str) -> None:
    """Print the reason of the end, as every command does."""
    echo(f"kstream: {reason}", err=True)


def command_of_driver(job: str, path: str, forget_ms: int | None, options: Sequence[str]) -> list[str]:
    """Return the command of a driver.

    Args:
        job: the argument of `kstream run`.
        path: the checkpoint.
        forget_ms: a batch time to forget; None for none. Only the first driver gets one: the next would find nothing to forget.
        options: the other options.
    """
    forgetting = [] if forget_ms is None else ["--forget-batch", str(forget_ms)]
    return [sys.executable, "-m", "kstream.cli", "run", job, "--checkpoint", path, "--no-restart", *forgetting, *options]


def check_allowed(allow: Sequence[str]) -> None:
    """Raise ConfigurationError if a value of `--allow` is unknown."""
    for word in allow:
        if word.startswith(INTERVAL) and word.removeprefix(INTERVAL).isdigit():
            continue
        if not word.startswith((DROPPED, TOPICS, WINDOW)) or "," in word or word in (DROPPED, TOPICS, WINDOW):
            raise ConfigurationError(
                f"--allow {word} is not known: give dropped:NAME or topics:NAME, with the name or the number of one stream, "
                "interval:MS, with the last batch of the former interval, or window:ID, with the id of one state",
                key="allow",
                value=word,
            )
