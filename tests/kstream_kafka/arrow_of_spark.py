"""The schema of Arrow that Spark expects of a data source, by each pyspark."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_of_spark(schema: StructType) -> pa.Schema:
    """Return it, with timestamps in UTC. Before Spark 4.2 they always are, and no parameter says so."""
    named: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **named)
