"""Makes a SparkContext with the settings that kstream needs, and pickles functions of the user."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.cloudpickle import CloudPickler
from pyspark.cloudpickle import dumps as cloudpickle_dumps
from pyspark.cloudpickle import loads as cloudpickle_loads

from kstream.spark.submit_args import SUBMIT_ARGS, given_names, turn_off_progress_bar
from kstream.spark.workers_python import use_workers_python

UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"


def spark_version() -> tuple[int, int]:
    """Return pyspark's major and minor version."""
    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def make_spark_context(conf: SparkConf) -> SparkContext:
    """Make a SparkContext, on a Java that is found or made, with workers over Unix sockets (Spark ≥ 4.1). Blocks while the JVM starts.

    The sockets cut the cost of a Python task to a half or less; a value that the user has given anywhere wins. `workers_python` says which
    Python the workers run. `conf` may be changed.

    Raises:
        JavaNotFoundError: there is no suitable Java.
    """
    if active_spark_context() is None:
        from kstream.spark.java import ensure_java

        ensure_java()
        if SparkContext._gateway is None:  # pyright: ignore – else a later restore would take this for a setting of the user
            turn_off_progress_bar()
    if spark_version() >= (4, 1) and not conf.contains(UNIX_SOCKET) and not _is_given(UNIX_SOCKET, conf):
        conf = conf.set(UNIX_SOCKET, "true")
    sc = SparkContext(conf=conf)
    use_workers_python(sc)
    return sc


def _is_given(key: str, conf: SparkConf) -> bool:
    """Return whether the JVM was given a setting: by spark-submit, PYSPARK_SUBMIT_ARGS or spark-defaults.conf.

    Starts the JVM with `conf`, as SparkContext does, if there is none: before that a SparkConf knows of these places nothing.
    """
    SparkContext._ensure_initialized(conf=conf)  # pyright: ignore
    return SparkConf().contains(key)


def active_spark_context() -> SparkContext | None:
    """Return the SparkContext of this process; None if none runs. Any thread."""
    return SparkContext._active_spark_context  # pyright: ignore


def default_conf() -> SparkConf:
    """Return the settings of the running SparkContext; without one, the settings known so far that a new one would get."""
    existing = active_spark_context()
    return SparkConf() if existing is None else existing.getConf()


MADE_UP = {"spark.master": "local[*]", "spark.ui.showConsoleProgress": "true", "spark.submit.pyFiles": ""}
"""Settings that Spark's launcher sets in every JVM by default. They do not come from the user."""


@contextmanager
def restored_conf(stored: Mapping[str, str]) -> Generator[SparkConf]:
    """Yield the settings of a SparkContext that restores `stored`, in a process without a SparkContext. Make the SparkContext in the body.

    Settings that this process was given (`--master` and `--conf` of spark-submit, spark-defaults.conf) win over the stored ones, except
    the application's name, for which spark-submit has a default. If no JVM runs yet, this launches one with the stored settings, like the
    first start: memory, packages and the class path only have an effect at the launch.

    Args:
        stored: the settings that a checkpoint has.

    Raises:
        JavaNotFoundError: there is no suitable Java.
    """
    from kstream.spark.java import ensure_java, under_spark_submit

    ensure_java()
    submitted = under_spark_submit()
    earlier = not submitted and SparkContext._gateway is not None  # pyright: ignore – its properties are those of another context
    given = given_names(os.environ.get(SUBMIT_ARGS, ""), os.environ)
    at_launch = {} if submitted or earlier else {key: value for key, value in stored.items() if key not in given}
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(at_launch.items())))  # pyright: ignore
    system: Any = SparkContext._jvm.java.lang.System  # pyright: ignore
    if submitted:
        given = given_names(str(system.getProperty("sun.java.command")), os.environ)
    conf = SparkConf()
    for key, value in stored.items():
        made_up = key not in given and (earlier or conf.get(key) == MADE_UP.get(key))
        if made_up or not conf.contains(key):
            conf.set(key, value)
    if "spark.app.name" in stored:
        conf.setAppName(stored["spark.app.name"])
    try:
        yield conf
    finally:  # the properties of a JVM are defaults of every later SparkContext of the process
        for key in at_launch:
            system.clearProperty(key)
        for key in MADE_UP.keys() & at_launch.keys():
            system.setProperty(key, MADE_UP[key])


def settings_of(sc: SparkContext) -> dict[str, str]:
    """Return the settings of a SparkContext, without the Java options that Spark adds for every JVM that it launches."""
    settings = dict(sc.getConf().getAll())
    own = str(sc._jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions())  # pyright: ignore
    for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        _, found, rest = settings.get(key, "").partition(own)
        if found and not (rest := rest.strip()):
            del settings[key]
        elif found:
            settings[key] = rest
    return settings


def dump_functions(functions: Sequence[object]) -> bytes:
    """Pickle functions of the user together, so that shared objects stay shared. Raises the errors of cloudpickle."""
    with _no_broadcasts_left():
        return cloudpickle_dumps(list(functions))


def try_to_pickle(functions: Sequence[object]) -> None:
    """Pickle functions as `dump_functions` does, and drop the bytes. Raises the errors of cloudpickle."""
    with _no_broadcasts_left():
        CloudPickler(_Nowhere()).dump(list(functions))


@contextmanager
def _no_broadcasts_left() -> Generator[None]:
    """Forget the broadcast variables pickled in the body. Otherwise PySpark would send them with the next job of this thread."""
    try:
        yield
    finally:
        context: Any = active_spark_context()
        if context is not None:
            context._pickled_broadcast_vars.clear()


class _Nowhere:
    """A file that drops its input."""

    def write(self, data: Any) -> int:
        return len(data)


def load_functions(data: bytes) -> list[object]:
    """Return the functions that `dump_functions` has pickled. Raises the errors of pickle, and of imports."""
    return cloudpickle_loads(data)
