"""TypedColumns: record batches with the fields of the values as columns, beside those of the records. Needs pyarrow, but no Spark.

The values of a record batch are decoded at once by their ValueFormat. What becomes of a value that does not fit is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kstream_kafka.errors import MalformedValueError
from kstream_kafka.reader.arrow import COLUMNS, Chunk, record_batches, to_record_batch
from kstream_kafka.reader.value_formats import VALUE, DecodedValues, MalformedValue, ValueFormat, ValueSchema

CORRUPT = "_corrupt"
"""The column with the text of a value that does not fit."""

LeaveOut: TypeAlias = Callable[[Any, str], None]
"""A function that takes a message whose value does not fit, and the reason: the record is left out. May block, and may raise."""


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The columns of a query whose values are decoded. Immutable; pickled into the tasks.

    Attributes:
        names: the names of all columns, in their order: fields of the values, columns of COLUMNS, and CORRUPT.
        values: what is asked of the values.
        is_struct: whether the column `value` has the fields of the values as a struct. Otherwise each field is a column.
    """

    names: tuple[str, ...]
    values: ValueSchema
    is_struct: bool = False

    def record_batches(self, chunks: Iterable[Chunk], leave_out: LeaveOut | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all messages in order, in record batches of limited size. Lazy. Runs in a Spark task and blocks while `chunks` blocks.

        Args:
            chunks: the chunks. Their errors are raised here.
            leave_out: takes the records that the mode "dead-letter" leaves out.

        Raises:
            MalformedValueError: a value does not fit, and the mode is "fail".
        """
        decoder = self.values.open()
        # What is left out is told before the next chunk is asked for: behind the last one, the task's dead letters are made durable.
        for some in (chunks,) if leave_out is None else ([chunk] for chunk in chunks):
            yield from record_batches(some, (VALUE,), lambda together: self._batch(together, decoder, leave_out))

    def _batch(self, chunks: Sequence[Chunk], decoder: ValueFormat, leave_out: LeaveOut | None) -> pa.RecordBatch:
        """Return the record batch of some chunks, with the values decoded. The mode decides what becomes of those that do not fit.

        Permissive: the row stays. Dead-letter: `leave_out` gets the message, and the row is removed. Otherwise MalformedValueError.
        """
        of_values = () if self.is_struct else self.values.fields.names
        records = to_record_batch(chunks, [VALUE, *(name for name in self.names if name in COLUMNS and name not in (VALUE, *of_values))])
        raw = records.column(VALUE)
        found = decoder.decode(raw)
        columns = {**dict(zip(records.schema.names, records.columns, strict=True)), **self._of_values(found)}
        if CORRUPT in self.names:
            columns[CORRUPT] = _texts(raw, found.malformed)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in self.names], list(self.names))
        if not found.malformed or self.values.mode == "permissive":
            return batch
        messages = list(chain.from_iterable(messages for _, messages in chunks))
        if self.values.mode == "fail" or leave_out is None:
            message, reason = messages[found.malformed[0].row], found.malformed[0].reason
            raise MalformedValueError(message.topic(), message.partition(), message.offset(), reason)
        fits = np.ones(len(messages), bool)
        for row, reason in found.malformed:
            leave_out(messages[row], reason)
            fits[row] = False
        return batch.filter(pa.array(fits))

    def _of_values(self, found: DecodedValues) -> dict[str, pa.Array]:
        """Return the columns that the decoded values make, by name: `value` as a struct, or each field."""
        if self.is_struct:
            return {VALUE: found.rows}
        return dict(zip(self.values.fields.names, found.rows.flatten(), strict=True))


def _texts(values: pa.BinaryArray, malformed: Sequence[MalformedValue]) -> pa.StringArray:
    """Return the texts of the malformed values, and null for all others."""
    if not malformed:
        return pa.nulls(len(values), pa.string())
    texts: list[str | None] = [None] * len(values)
    for row, _ in malformed:
        texts[row] = values[row].as_py().decode(errors="replace")
    return pa.array(texts, pa.string())
