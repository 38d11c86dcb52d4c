"""`kstream run module:setup --checkpoint PATH`: a job from its checkpoint."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from kstream.batch_time import Time
from kstream.checkpoint.binding import DROPPED, TOPICS
from kstream.checkpoint.offline import forget_batch, forget_missing
from kstream.cli.inputs import tools
from kstream.cli.terminal import clear_errors, one_line, require_pyspark
from kstream.errors import ConfigurationError
from kstream.spark.checkpoint_store import open_checkpoint

if TYPE_CHECKING:
    from kstream.context import StreamingContext

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
    "it has offsets of; those offsets are kept. NAME is the stream's name, else its number.",
)
@click.option("--verbose", is_flag=True, help="Show tracebacks and the messages of client libraries, such as Kafka's.")
def run_command(job: str, path: str, forget_batch: int | None, allow: tuple[str, ...], verbose: bool) -> None:
    """Run a streaming job until SIGTERM or Ctrl-C. The next start continues exactly where the job stopped.

    MODULE:SETUP names a function without arguments that returns a StreamingContext: `jobs.orders:setup`, or `job.py:setup` for a
    file. It is called at every start, unless the checkpoint holds a graph stored by recovery=graph.
    """
    configure_logging(verbose)
    with clear_errors(verbose):
        check_allowed(allow)
        require_pyspark()
        if forget_batch is not None:
            forget(path, forget_batch)
        _run(load_setup(job), path, allow)


def check_allowed(allow: Sequence[str]) -> None:
    """Raise ConfigurationError if a value of `--allow` is unknown."""
    for word in allow:
        if not word.startswith((DROPPED, TOPICS)) or "," in word or word in (DROPPED, TOPICS):
            raise ConfigurationError(
                f"--allow {word} is not known: give dropped:NAME or topics:NAME, with the name or the number of one stream",
                key="allow",
                value=word,
            )


def _run(setup: Callable[[], Any], path: str, allow: Sequence[str] = ()) -> None:
    """Run the job. Blocks until the context has stopped. Ctrl-C stops it at once and ends the program with exit code 130.

    Args:
        setup: returns the StreamingContext; called unless the checkpoint has a stored graph.
        path: the checkpoint.
        allow: the values of `--allow`.

    Raises:
        KStreamError: an error of the start or of a stream. All other errors pass, too. After an error of `start`, or later, the context is
            stopped.
    """
    from kstream.context import StreamingContext
    from kstream.context.factories import services_of_context

    context = StreamingContext.getOrCreate(path, setup)
    if allow:
        services_of_context(context).settings.override("spark.streaming.kstream.recovery.allow", ",".join(allow))
    ship(setup, context)
    try:
        context.start()
        context.awaitTermination()
    except KeyboardInterrupt:
        logger.info("job interrupted: batches that are planned and not done run at the next start")
        context.stop(stopSparkContext=True, stopGraceFully=False)
        raise SystemExit(130) from None
    except BaseException:
        context.stop(stopSparkContext=True, stopGraceFully=False)
        raise
    logger.info("job stopped")


def ship(setup: Callable[[], Any], context: StreamingContext) -> None:
    """Send the file of the job to executors on other machines.

    A job in a package is not sent, and neither are other modules that the job imports. They must be installed there.
    """
    file = getattr(sys.modules.get(setup.__module__), "__file__", None)
    sc = context.sparkContext
    if file and "." not in setup.__module__ and not (sc.master or "").startswith("local"):
        sc.addPyFile(file)


def load_setup(job: str) -> Callable[[], Any]:
    """Return the function that `module:name` or `file.py:name` names. Imports the module; errors of the module itself pass.

    Raises:
        ConfigurationError: the text, the module or the function is wrong.
    """
    where, _, name = job.rpartition(":")
    if not where or not name:
        raise ConfigurationError(f"{job!r} does not name a job: give module:function, or file.py:function", key="job", value=job)
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    setup = getattr(module, name, None)
    if not callable(setup):
        what = "has no function" if setup is None else "has no function but a value"
        raise ConfigurationError(f"{where} {what} {name!r}: give module:function, or file.py:function", key="job", value=job)
    return setup


def _load_module(name: str) -> ModuleType:
    """Import a module, from the working directory or PYTHONPATH. Raises ConfigurationError if it does not exist."""
    _importable_from(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not (name == e.name or name.startswith(e.name + ".")):
            raise  # the module exists, but one of its imports does not
        raise ConfigurationError(f"there is no module {e.name!r} in {Path.cwd()} or on PYTHONPATH", key="job", value=name) from e


def _load_file(path: Path) -> ModuleType:
    """Import a file as a module. Raises ConfigurationError if it does not exist."""
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", key="job", value=str(path))
    _importable_from(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _importable_from(folder: Path) -> None:
    """Put a folder first on sys.path, here and in the Python workers of this machine."""
    sys.path.insert(0, str(folder))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{known}" if known else str(folder)


def forget(path: str, time_ms: int) -> None:
    """Set the plans of a batch aside, or record that its plan is missing. Logs the change.

    Args:
        path: the checkpoint.
        time_ms: the batch time.

    Raises:
        ConfigurationError: there is no plan of that time, and it does not lie between two plans.
    """
    store = open_checkpoint(path)
    moved = forget_batch(store, Time(time_ms))
    if not moved and forget_missing(store, Time(time_ms)):
        logger.warning("batch %d ms has no plan: this is recorded, and the stream continues without the records of the batch", time_ms)
    elif not moved:
        raise ConfigurationError(
            f"{store.url} holds no plan of batch {time_ms} ms: see `kstream checkpoint show {path}`", key="forget-batch", value=time_ms
        )
    for place in moved:
        logger.warning("plan %s is set aside: the next batch reads the offsets of its batch again", place)


class LineFormatter(logging.Formatter):
    """Formats a log record as time, level, logger and message. An exception is one line, unless `tracebacks` is true."""

    def __init__(self, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record."""
        if self._tracebacks or record.exc_info is None:
            return super().format(record)
        plain = logging.makeLogRecord({**record.__dict__, "msg": _first_line(record), "args": (), "exc_info": None, "exc_text": None})
        return super().format(plain)


def _first_line(record: logging.LogRecord) -> str:
    """Return the message of a log record and its error, as one line; the error's text appears once."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.getMessage()
    message, said = record.getMessage(), str(error)
    if said and message.endswith(said):
        message = message[: -len(said)].rstrip(": ")
    return f"{message}: {one_line(error)}"


def configure_logging(verbose: bool) -> None:
    """Log to standard error, and remove the other handlers of the root logger.

    kstream and its connectors log from INFO up, py4j from CRITICAL up, all others from WARNING up.

    Args:
        verbose: also log tracebacks, and the messages of client libraries that are silent otherwise.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(verbose))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("kstream").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for known in tools():
        package = type(known).__module__.partition(".")[0]
        logging.getLogger(package).setLevel(logging.INFO)
        for name in known.client_loggers if verbose else ():
            logging.getLogger(name).addHandler(handler)  # these loggers do not propagate
