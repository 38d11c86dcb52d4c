"""The checks of `kstream doctor` that start Spark: the versions on the executors, and a setting that halves the cost of tasks.

The probe imports nothing of kstream, so that it also runs where kstream is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kstream.cli.checks import PACKAGES, Check, Verdict
from kstream.cli.terminal import count, one_line
from kstream.conf import parse_bool

if TYPE_CHECKING:
    from pyspark import SparkContext

Place = tuple[str, dict[str, str]]
"""A host, and package → version in a Python worker there."""
TASKS_PER_EXECUTOR = 4
"""Tasks of the job for each executor: with one, a quick executor could take them all."""


def executors_checks(here: Mapping[str, str], sc: SparkContext) -> list[Check]:
    """Run one small Spark job that reads the versions on the executors, and check them and the setting of Unix sockets. Blocks.

    Args:
        here: package → version on the driver.
        sc: the SparkContext.
    """
    from kstream.spark.executors import executors

    number = max(1, len(executors(sc)))
    try:
        tasks = number * TASKS_PER_EXECUTOR
        places: list[Place] = sc.parallelize(range(tasks), tasks).map(_probe(dict(PACKAGES))).collect()
    except Exception as e:  # Spark's errors have no common type; that of Python's versions is one of them
        remedy = "Install on every node the Python and the packages of the driver, and set PYSPARK_PYTHON to that Python."
        return [Check("executors", Verdict.FAILED, f"no Python task can run: {one_line(e)}", remedy), socket_check(sc)]
    return [judge_executors(here, places, number), socket_check(sc)]


def _probe(packages: dict[str, str]) -> Callable[[int], Place]:
    """Return the function of a task. It is pickled by value, because it is not a function of a module."""

    def versions(_: int) -> Place:
        import importlib
        import importlib.metadata
        import platform
        import socket

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
        return socket.gethostname(), found

    return versions


def judge_executors(here: Mapping[str, str], places: Sequence[Place], executors: int) -> Check:
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
        verdict = Verdict.FAILED if failed else Verdict.WARNING
        return Check(
            "executors", verdict, "; ".join([*failed, *warned]), "Install the packages of the driver, in its versions, on every node."
        )
    return Check(
        "executors",
        Verdict.OK,
        f"the versions of the driver on {', '.join(sorted({host for host, _ in places}))} ({count(executors, 'executor')})",
    )


def _minor(version: str) -> list[str]:
    """Return the first two parts of a version."""
    return version.split(".")[:2]


def socket_check(sc: SparkContext) -> Check:
    """Check that Python workers talk to the JVM over Unix sockets."""
    from kstream.spark.spark_context import UNIX_SOCKET, spark_version

    if spark_version() < (4, 1):
        return Check("unix sockets", Verdict.OK, f"Spark {'.'.join(map(str, spark_version()))} has no such setting")
    on = False
    with suppress(ValueError):
        on = parse_bool(sc.getConf().get(UNIX_SOCKET) or "false")
    if on:
        return Check("unix sockets", Verdict.OK, f"{UNIX_SOCKET}=true")
    remedy = f"Set {UNIX_SOCKET}=true in the SparkConf: a Python task then costs half or less."
    return Check("unix sockets", Verdict.WARNING, f"{UNIX_SOCKET} is off", remedy)
