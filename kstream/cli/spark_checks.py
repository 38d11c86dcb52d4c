"""The checks of `kstream doctor` that start Spark: what each executor has and reaches, and a setting that halves the cost of tasks.

The probe imports nothing of kstream before it has read the versions, so that it also runs where kstream is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kstream.cli.checks import modules_of_packages
from kstream.cli.terminal import count, one_line
from kstream.conf import parse_bool
from kstream.connectors import Finding
from kstream.spark.executor_questions import CHECKPOINT, OF_CHECKPOINT, Answer, ExecutorQuestions

if TYPE_CHECKING:
    from pyspark import SparkContext

Place = tuple[str, dict[str, str]]
"""A host, and package → version in a Python worker there."""
Told = tuple[str, dict[str, str], list[Answer]]
"""The same, and the answers of the worker."""


def executors_checks(
    here: Mapping[str, str], sc: SparkContext, questions: ExecutorQuestions | None = None, has_state: bool = False
) -> list[Finding]:
    """Ask each executor by a small Spark job for its versions, the checkpoint and the brokers; check the setting of Unix sockets. Blocks.

    Args:
        here: package → version on the driver.
        sc: the SparkContext.
        questions: what to ask about the checkpoint; None for nothing.
        has_state: whether the checkpoint has state, which the executors read and write.
    """
    from pyspark import cloudpickle

    from kstream.spark.executor_check import ask_executors

    try:
        told: list[Told] = ask_executors(sc, _probe(modules_of_packages(), cloudpickle.dumps(questions or ExecutorQuestions())))
    except TimeoutError as e:
        remedy = "See the page of the master: which workers it has, and which applications hold them."
        return [Finding("executors", "failed", str(e), remedy), socket_check(sc)]
    except Exception as e:  # Spark's errors have no common type; that of Python's versions is one of them
        remedy = "Install on every node the Python and the packages of the driver, and set PYSPARK_PYTHON to that Python."
        return [Finding("executors", "failed", f"no Python task can run: {one_line(e)}", remedy), socket_check(sc)]
    versions = judge_executors(here, [(host, found) for host, found, _ in told], len(told))
    return [versions, *judge_answers(told, has_state), socket_check(sc)]


def _probe(packages: dict[str, str], questions: bytes) -> Callable[[Iterable[Any]], list[Told]]:
    """Return the function of a task. It is pickled by value, because it is not a function of a module."""

    def look(nothing: Iterable[Any]) -> list[Told]:
        import importlib
        import importlib.metadata
        import pickle
        import platform
        import socket

        for _ in nothing:
            pass
        found = {"python": platform.python_version()}
        for package, module in {**packages, "kstream": "kstream"}.items():
            try:
                imported = importlib.import_module(module)
            except Exception:  # missing, or not importable there
                continue
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = str(getattr(imported, "__version__", "of unknown version"))
        try:
            answers = pickle.loads(questions).answers()
        except ImportError:  # the versions tell what is missing
            answers = []
        return [(socket.gethostname(), found, answers)]

    return look


_OF_BROKERS = "The executors read the topics: let them reach the brokers by the addresses that these advertise."


def judge_answers(told: Sequence[Told], has_state: bool) -> list[Finding]:
    """Return a check for the checkpoint, and one for each stream, as the executors see them. Pure.

    Without state a checkpoint that they do not reach is a warning: the job may get state, and the driver alone reads the rest.
    """
    checks: list[Finding] = []
    for name in dict.fromkeys(name for _, _, answers in told for name, _ in answers):
        wrong = {host: said for host, _, answers in told for of, said in answers if of == name and said}
        if wrong:
            seen = "; ".join(f"{host}: {said}" for host, said in sorted(wrong.items()))
            verdict = "warning" if name == CHECKPOINT and not has_state else "failed"
            checks.append(Finding(f"executors, {name}", verdict, seen, OF_CHECKPOINT if name == CHECKPOINT else _OF_BROKERS))
        else:
            well = "each can read, write and delete there" if name == CHECKPOINT else "the brokers answer each"
            checks.append(Finding(f"executors, {name}", "ok", well))
    return checks


def judge_executors(here: Mapping[str, str], places: Sequence[Place], executors: int) -> Finding:
    """Compare the versions on executors with those on the driver. Pure.

    Another minor version of Python or Spark, another kstream, and a package that is missing fail. Other differences are a warning.

    Args:
        here: package → version on the driver.
        places: what the tasks saw.
        executors: the number of executors, at least 1.
    """
    failed, warned = list[str](), list[str]()
    different = {(host, tuple(sorted(versions.items()))) for host, versions in places}
    for host, pairs in sorted(different):
        versions = dict(pairs)
        for package, version in here.items():
            there = versions.get(package)
            if there is None:
                (warned if package == "pyarrow" else failed).append(f"{host} has no {package}")
            elif there != version:
                grave = package == "kstream" or (package in ("python", "pyspark") and _minor(there) != _minor(version))
                (failed if grave else warned).append(f"{host} has {package} {there}, the driver {version}")
    if failed or warned:
        verdict = "failed" if failed else "warning"
        return Finding(
            "executors", verdict, "; ".join([*failed, *warned]), "Install the packages of the driver, in its versions, on every node."
        )
    return Finding(
        "executors",
        "ok",
        f"the versions of the driver on {', '.join(sorted({host for host, _ in places}))} ({count(executors, 'executor')})",
    )


def _minor(version: str) -> list[str]:
    """Return the first two parts of a version."""
    return version.split(".")[:2]


def socket_check(sc: SparkContext) -> Finding:
    """Check that Python workers talk to the JVM over Unix sockets."""
    from kstream.spark.spark_context import UNIX_SOCKET, spark_version

    if spark_version() < (4, 1):
        return Finding("unix sockets", "ok", f"Spark {'.'.join(map(str, spark_version()))} has no such setting")
    on = False
    with suppress(ValueError):
        on = parse_bool(sc.getConf().get(UNIX_SOCKET) or "false")
    if on:
        return Finding("unix sockets", "ok", f"{UNIX_SOCKET}=true")
    remedy = f"Set {UNIX_SOCKET}=true in the SparkConf: a Python task then costs half or less."
    return Finding("unix sockets", "warning", f"{UNIX_SOCKET} is off", remedy)
