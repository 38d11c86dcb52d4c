"""What a query needs of the Python that Spark runs."""

from __future__ import annotations

import sys

import pytest
from kstream_kafka.structured.requirements import check_pyarrow
from pyspark_kstream import DefaultSource

from kstream.errors import MissingDependencyError


def test_a_python_without_pyarrow_is_named_when_the_query_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later Spark would say only that its worker has not connected."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="needs pyarrow in the Python that Spark runs, and") as e:
        DefaultSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    assert sys.executable in str(e.value)


def test_the_variable_is_named_that_spark_has_taken_its_python_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYSPARK_DRIVER_PYTHON wins: where it is set, a new PYSPARK_PYTHON would change nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for variables, named in (
        ({}, "PYSPARK_PYTHON"),
        (dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), "p"), "PYSPARK_DRIVER_PYTHON"),
    ):
        with pytest.raises(MissingDependencyError, match=f"set {named} to a Python"):
            check_pyarrow(variables)
