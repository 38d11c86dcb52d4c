"""What a query needs of the Python that Spark runs."""

from __future__ import annotations

import sys

import pytest
from pyspark_kstream import DefaultSource

from kstream.errors import MissingDependencyError


def test_a_python_without_pyarrow_is_named_when_the_query_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later Spark would say only that its worker has not connected."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"needs pyarrow in the Python that Spark runs, and .* set PYSPARK_PYTHON") as e:
        DefaultSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    assert sys.executable in str(e.value)
