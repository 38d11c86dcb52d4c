"""What the Python of Spark's workers must have before a query can begin."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping

from kstream.errors import MissingDependencyError

INSTALL = "pip install 'kstream-spark[spark]'"
VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""The variables of the driver that name the Python of data sources, as Spark reads them: the first that is set wins."""


def check_pyarrow(environment: Mapping[str, str] = os.environ) -> None:
    """Check that this Python has pyarrow. Imports nothing.

    Spark defines a query in the Python that will plan and read it. There pyspark imports pyarrow before it connects. All that Spark tells
    of the failure, ten seconds later, is that its worker has not connected.

    Args:
        environment: the variables of the driver, which the Python that Spark runs inherits.

    Raises:
        MissingDependencyError: it has not.
    """
    if importlib.util.find_spec("pyarrow") is None:
        variable = next((name for name in VARIABLES if name in environment), VARIABLES[-1])
        remedy = f"run {INSTALL} there, or set {variable} to a Python that has it"
        raise MissingDependencyError(
            f"format('kstream') needs pyarrow in the Python that Spark runs, and {sys.executable} has none: {remedy}",
            package="pyarrow",
            install=INSTALL,
        )
