"""Asks the executors of a cluster, before the first batch, whether their Python can run the tasks of a job.

A worker that lacks a module fails each task of each batch, four times, with a traceback of a hundred lines. Here it is one sentence at the
start. In local mode there is nothing to ask.

The function that runs on the executors imports nothing of kstream, so that it also runs where kstream is missing.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from kstream.errors import ConfigurationError, KStreamError, MissingDependencyError, one_line
from kstream.spark.executor_questions import OF_CHECKPOINT, ExecutorQuestions
from kstream.spark.executors import executors, forget_executors
from kstream.spark.jvm_log import quiet_failed_tasks
from kstream.spark.task_errors import prepare_workers, users_error
from kstream.spark.worker_rdd import empty_rdd
from kstream.spark.workers_python import SPARKS_DEFAULT, VARIABLE, is_local_master, set_workers_python, workers_python

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
LONGEST_S = 60.0
"""Seconds for the answers of the executors. A cluster may have no free core for as long as other applications run."""
_LEAST_S = 5.0
"""Seconds that all executors have at least, after the first one has answered."""
_QUIET_S = 5.0
"""Seconds after which the log says that the start waits."""
_MOST_BYTES = 16 << 20
"""Larger functions are not sent twice: once here, and once in the tasks."""
_PACKED = "--archives environment.tar.gz#environment"
_REMEDY = (
    f"Set {VARIABLE} to a Python that every executor has with the packages of the driver, or pack such an environment: {_PACKED}. "
    "Modules of your own go to the executors by --py-files"
)


@dataclass(frozen=True, slots=True)
class ExecutorPython:
    """What a worker has said of itself.

    Attributes:
        host: its host.
        python: its Python's program.
        version: its version of Python.
        lacks: the first thing that it cannot import, with the error; "" if it can run the tasks.
        module: the module that is missing; "" if none is, or if its name is unknown.
        checkpoint: what is wrong with the checkpoint there; "" if it can be read and written, or was not asked for.
    """

    host: str
    python: str
    version: str
    lacks: str = ""
    module: str = ""
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the tasks of a job need on an executor.

    Attributes:
        modules: modules to import.
        functions: the user's functions, pickled together; b"" for none.
        checkpoint: the question about the checkpoint; None for a job without state.
    """

    modules: Sequence[str]
    functions: bytes = b""
    checkpoint: ExecutorQuestions | None = None


def check_executors(sc: SparkContext, needs: Needs, by_default: bool, longest_s: float = LONGEST_S) -> bool:
    """Ask each executor by a small Spark job whether it can run the tasks. Blocks, for `longest_s` at most. The starting thread calls it.

    If the executors do not answer in time, a warning says so, and the start goes on: Spark waits for executors as it always does.

    Args:
        sc: the SparkContext. In local mode nothing happens.
        needs: what the tasks need.
        by_default: whether kstream has chosen the workers' Python. If no executor can run it, the `python3` of their PATH is tried.
        longest_s: seconds to wait for the answers.

    Returns:
        Whether the executors have answered.

    Raises:
        ConfigurationError: the executors cannot run the Python, or it has another minor version than the driver's; or they cannot read and
            write the checkpoint of a job with state.
        MissingDependencyError: it cannot import a module that the tasks need.
    """
    if is_local_master(sc.master):
        return False
    quiet_failed_tasks(sc)
    prepare_workers(sc)  # another environment would be another daemon of Python on each executor
    deadline = time.monotonic() + longest_s
    try:
        answers = _answers_or_sparks_default(sc, needs, by_default, deadline)
    except KStreamError as e:
        raise _with_python(e, workers_python(sc)) from e
    except Exception as e:  # py4j's and Spark's errors have no common type
        why = str(e) if isinstance(e, TimeoutError) else one_line(e)
        logger.warning("executors not asked whether they can run the tasks of the job, the start goes on: %s", why)
        return False
    if error := judge(answers):
        raise error
    hosts = ", ".join(sorted({answer.host for answer in answers}))
    logger.info("executors on %s run %s (Python %s), and can import what the tasks need", hosts, answers[0].python, answers[0].version)
    return True


def judge(answers: Sequence[ExecutorPython]) -> KStreamError | None:
    """Return the error for executors that cannot run the tasks, or None. It names their hosts, their Python and what is missing. Pure."""
    lacking = [answer for answer in answers if answer.lacks]
    if not lacking:
        return _judge_checkpoint(answers)
    first = lacking[0]
    hosts = ", ".join(sorted({answer.host for answer in lacking}))
    return MissingDependencyError(
        f"the Python of the executors on {hosts} ({first.python}, version {first.version}) cannot import what the tasks need: "
        f"{first.lacks}. {_REMEDY}",
        package=first.module,
        install=_REMEDY,
    )


def _judge_checkpoint(answers: Sequence[ExecutorPython]) -> KStreamError | None:
    """Return the error for executors that do not reach the checkpoint, or None. Pure."""
    wrong = {answer.host: answer.checkpoint for answer in answers if answer.checkpoint}
    if not wrong:
        return None
    seen = "; ".join(f"{host}: {said}" for host, said in sorted(wrong.items()))
    return ConfigurationError(f"the job has state, and executors do not reach its checkpoint: {seen}. {OF_CHECKPOINT}", key="checkpoint")


def _answers_or_sparks_default(sc: SparkContext, needs: Needs, by_default: bool, deadline: float) -> list[ExecutorPython]:
    """Return the answers of the executors. Where they cannot run the Python that kstream has chosen, let them run Spark's default."""
    try:
        return _answers(sc, needs, deadline)
    except ConfigurationError as e:
        chosen = workers_python(sc)
        if not by_default or e.facts.get("value") != chosen:  # another minor version, or a word of the user
            raise
        logger.info("executors have no %s, so they run the %s of their PATH", chosen, SPARKS_DEFAULT)
        set_workers_python(sc, SPARKS_DEFAULT)
        return _answers(sc, needs, deadline)


def _answers(sc: SparkContext, needs: Needs, deadline: float) -> list[ExecutorPython]:
    """Return the answers of the executors. Raises as `ask_executors`."""
    functions = needs.functions if len(needs.functions) <= _MOST_BYTES else b""
    look = _look(list(needs.modules), functions, pickle.dumps(needs.checkpoint))
    return [ExecutorPython(*answer) for answer in ask_executors(sc, look, deadline - time.monotonic())]


def ask_executors(sc: SparkContext, question: Callable[[Iterable[Any]], Iterable[Any]], longest_s: float = LONGEST_S) -> list[Any]:
    """Run a function in a task on one executor, and then in one on each of those that have registered with Spark by then. Blocks.

    Args:
        sc: the SparkContext. In local mode one task runs.
        question: gets an iterable of nothing, which it must read to its end, and returns the answers of an executor.
        longest_s: the seconds after which the Spark job is cancelled.

    Returns:
        The answers of all executors.

    Raises:
        ConfigurationError: the executors cannot run the Python, or it has another minor version than the driver's.
        TimeoutError: they have not answered within `longest_s`.
        Exception: another error of Spark.
    """
    deadline = time.monotonic() + longest_s
    first = _run(
        sc,
        question,
        [()],
        deadline,
        f"no executor has answered within {longest_s:.0f} s: has the cluster a free core, and the memory of an executor?",
    )
    there = executors(sc)
    forget_executors(sc)
    if len(there) < 2:
        return first
    known = ", ".join(str(executor.location) for executor in there)
    silent = f"one executor has answered within {longest_s:.0f} s, and not each of those that Spark knows: {known}"
    deadline = max(deadline, time.monotonic() + _LEAST_S)
    return _run(sc, question, [(str(executor.location),) for executor in there], deadline, silent)


def _run(
    sc: SparkContext, question: Callable[[Iterable[Any]], Iterable[Any]], locations: Sequence[Sequence[str]], deadline: float, silent: str
) -> list[Any]:
    """Run a task at each of the locations, until the deadline. Raises as `ask_executors`; `silent` is the message of the TimeoutError."""
    tasks: Any = empty_rdd(sc, len(locations), locations)
    with _until(sc, max(0.0, deadline - time.monotonic())):
        try:
            return tasks.mapPartitions(question).collect()
        except (Py4JJavaError, PythonException) as e:
            if time.monotonic() >= deadline:
                raise TimeoutError(silent) from e
            raise users_error(e) or e from e


@contextmanager
def _until(sc: SparkContext, longest_s: float) -> Generator[None]:
    """Cancel the Spark jobs of the body after this time. Log once if they take long."""
    group = f"kstream-check-{uuid.uuid4().hex}"
    words = "the start waits for executors, to see whether they can run the tasks: for %d s at most. Does the cluster have free cores?"
    timers = [threading.Timer(_QUIET_S, logger.info, (words, round(longest_s))), threading.Timer(longest_s, sc.cancelJobGroup, (group,))]
    sc.setJobGroup(group, "kstream asks the executors whether they can run the tasks of the job")
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context: Any = sc
            context.setLocalProperty(key, None)


def _look(modules: list[str], functions: bytes, about_checkpoint: bytes) -> Callable[[Iterable[Any]], list[tuple[str, ...]]]:
    """Return the function of a task on an executor, which gives the fields of its ExecutorPython, in their order.

    It imports the modules, asks about the checkpoint, and loads the functions of the user. It is pickled by value, because it is not a
    function of a module.
    """

    def look(nothing: Iterable[Any]) -> list[tuple[str, ...]]:
        import importlib
        import pickle
        import platform
        import socket
        import sys

        for _ in nothing:
            pass
        lacks = missing = checkpoint = ""
        try:
            for module in modules:
                importlib.import_module(module)
            if questions := pickle.loads(about_checkpoint):
                checkpoint = "; ".join(said for _, said in questions.answers() if said)
            if functions:
                pickle.loads(functions)
        except ImportError as e:
            lacks, missing = f"{type(e).__name__}: {e}", e.name or ""
        except Exception:  # the tasks themselves tell what is wrong with a function
            pass
        return [(socket.gethostname(), sys.executable, platform.python_version(), lacks, missing, checkpoint)]

    return look


def _with_python(error: KStreamError, python: str) -> KStreamError:
    """Return the error of a worker's set-up with the Python that the executors were to run, and with another remedy: to pack a Python.

    A MissingDependencyError has both already.
    """
    if isinstance(error, MissingDependencyError):
        return error
    named = one_line(error)
    seen = "" if python in named else f" (now they run {python})"
    return ConfigurationError(f"{named}{seen}, or pack such an environment: {_PACKED}", **error.facts)
