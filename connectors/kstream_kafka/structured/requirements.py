"""What the Python of Spark's workers must have before a query can begin."""

from __future__ import annotations

import importlib.util
import sys

from kstream.errors import MissingDependencyError

INSTALL = "pip install 'kstream-spark[spark]'"


def check_pyarrow() -> None:
    """Check that this Python has pyarrow. Imports nothing.

    Spark defines a query in the Python that will plan and read it. There pyspark imports pyarrow before it connects. All that Spark tells
    of the failure, ten seconds later, is that its worker has not connected.

    Raises:
        MissingDependencyError: it has not.
    """
    if importlib.util.find_spec("pyarrow") is None:
        remedy = f"run {INSTALL} there, or set PYSPARK_PYTHON to a Python that has it"
        raise MissingDependencyError(
            f"format('kstream') needs pyarrow in the Python that Spark runs, and {sys.executable} has none: {remedy}",
            package="pyarrow",
            install=INSTALL,
        )
