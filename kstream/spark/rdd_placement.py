"""SparkPlacement: Spark's pages show RDDs, stages and stored blocks at the user's call of the operator, not inside kstream.

Spark's Scala DStreams set two local properties while they create an RDD: its call site and its scope. This module does the same, against
two obstacles of PySpark. First, PySpark creates the JVM's RDDs as late as it can, so that a `map` appears at the call that uses it.
Second, when PySpark creates an RDD for a shuffle, it sets the call site to the caller of the outermost pyspark function on Python's
stack. Afterwards it removes the property. Therefore the call site is a *default* of the properties, which the removal does not
reach. Therefore also `called_at` changes the stack that PySpark sees.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar

from pyspark import RDD, SparkContext
from pyspark.traceback_utils import first_spark_call

from kstream.batch import RDDScope
from kstream.dstream.ports import Placement
from kstream.dstream.recipe import CallSite

R = TypeVar("R")
_IN_PYSPARK = os.path.join(os.path.dirname(first_spark_call.__code__.co_filename), "(kstream)")
_call: Callable[..., Any] = lambda function, *rest: function(*rest)  # noqa: E731 – in one line, because `_frame` moves one line


class SparkPlacement(Placement):
    """Sets call site and scope of RDDs. `properties` are Spark's local properties of all jobs and RDDs; they are copied, never changed."""

    def __init__(self, sc: SparkContext, properties: Any) -> None:
        self._context: Any = sc._jsc.sc()  # pyright: ignore
        self._properties_class: Any = sc._jvm.java.util.Properties  # pyright: ignore
        self._properties = properties
        self._placed: dict[tuple[str, bool], Any] = {}

    def place(self, site: CallSite, scope: RDDScope | None, open_to_inner: bool, body: Callable[[], R]) -> R:
        """Run `body` on this thread and return its result; the RDDs that it makes have the call site and the scope.

        Restores the thread's local properties afterwards.

        Args:
            site: The user's call of the operator.
            scope: The box in which Spark's page draws the RDDs; None sets none.
            open_to_inner: Whether a function of the user runs in `body`. Its own calls then show their own call sites, nested in the scope.
            body: Makes the RDDs.
        """
        before = self._context.getLocalProperties()
        properties = self.properties_of(site.short_form, str(site), open_to_inner)
        if scope is not None:
            properties.setProperty("spark.rdd.scope", scope.to_json())
        self._context.setLocalProperties(properties)
        try:
            return body() if open_to_inner else called_at(site, body)
        finally:
            self._context.setLocalProperties(before)

    def called_at(self, site: CallSite, body: Callable[[], R]) -> R:
        """Run `body` and return its result; the Spark jobs that it runs have this call site. See the function `called_at`."""
        return called_at(site, body)

    def name(self, rdd: RDD[Any], name: str) -> None:
        """Name an RDD that has no name yet. This creates the RDD in the JVM now."""
        if rdd.name() is None:
            rdd.setName(name)

    def properties_of(self, short: str, long: str, open_to_inner: bool) -> Any:
        """Return a new copy of the properties (Java's) with this call site as a default. Makes one call to the JVM after the first time.

        Args:
            short: The short form of the call site.
            long: The long form of the call site.
            open_to_inner: Whether RDDs may have scopes of their own below the one that is set.
        """
        made = self._placed.get((short, open_to_inner))
        if made is None:
            defaults = self._properties_class()
            defaults.setProperty("callSite.short", short)
            defaults.setProperty("callSite.long", long)
            made = self._properties_class(defaults)
            made.putAll(self._properties)
            if not open_to_inner:
                made.setProperty("spark.rdd.scope.noOverride", "true")
            self._placed[short, open_to_inner] = made
        return made.clone()


def called_at(site: CallSite, body: Callable[[], R]) -> R:
    """Run `body` on a stack that looks to pyspark as if the user's line had called the operator of pyspark itself. Return its result.

    Two frames give this look: one in the user's file, and one in pyspark's folder with the operator's name. Tracebacks show both frames, so
    they show the user's own line.
    """
    user, operator = _frames(site)
    return user(operator, body)


@lru_cache(maxsize=1024)
def _frames(site: CallSite) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions of the two frames: the user's line, and the operator in pyspark's folder."""
    return _frame(site.file, site.line, site.function), _frame(_IN_PYSPARK, 1, site.function)


def _frame(file: str, line: int, name: str) -> Callable[..., Any]:
    """Return a copy of `_call` whose frames show this file, line and function name."""
    code: Any = _call.__code__
    return FunctionType(code.replace(co_filename=file, co_firstlineno=line, co_name=name), {}, name)
