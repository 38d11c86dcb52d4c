"""JsonFormat: JSON values as typed columns. Needs pyarrow and numpy, but no Spark.

Arrow's reader of JSON lines reads all values of a chunk at once. It reads a stream of documents, and raises for the whole of it if one
does not fit. So two things are decided here:

- Each value must be one document. A value may have line ends in it, and Arrow would read two documents in a value, or one in two values.
  If every value begins with `{` and ends with `}`, a value that ends inside a document is no JSON: `} {` is an error in every object and
  list, and a line end is one in every string. So each value has at least one document, and as many rows as values means one each.
- If a chunk does not fit, some values are blamed for it by the words of the error, and the others are read again. What was blamed is
  decoded by Python, value by value. So a value that does not fit costs little, and what fits after all, as one with a key twice, is kept.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from kstream_kafka.reader.json_documents import JsonDocuments
from kstream_kafka.reader.json_types import pc, read_type, typed
from kstream_kafka.reader.value_formats import DecodedValues, MalformedValue, ValueSchema, struct_of

Mask: TypeAlias = Any
"""For each value of a chunk whether it is meant: a numpy array of bool."""

MOST_READS = 8
"""How often a chunk is read without the values that were blamed, before Python decodes all that is left."""
MOST_ERRORS = 100
"""The most values that are found one by one, in a read. Each costs a call of Arrow, which is as much as some twenty values in Python."""
SPACE = " \t\r\n"
"""What JSON allows around a document."""

_ROW = re.compile(r" in row (\d+)")
_CHANGED = re.compile(r"Column\((/.*)\) changed from \w+ to (\w+) in row")
_CONVERSION = re.compile(r"JSON to (int\d+)")
_BEGINS = {"string": '"', "object": r"\{", "array": r"\[", "boolean": "[tf]", "number": "[-0-9NI]"}
"""Kind of JSON value, as Arrow names it → how one begins."""
_NO_WHOLE_NUMBER = r":\s*-?(\d+[.eE]|\d{%d})"
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}
"""Type of whole numbers → the fewest digits of one that is too large."""


class _DocumentsError(ValueError):
    """There are more documents than values."""


_UNREADABLE = (pa.ArrowInvalid, _DocumentsError)


class JsonFormat:
    """Values as JSON objects. A field of the schema that an object lacks is null, and a field that the schema lacks is left out."""

    def __init__(self, schema: ValueSchema) -> None:
        """
        Args:
            schema: the schema.

        Raises:
            ValueError: a field has a type that JSON values cannot have.
        """
        self._fields = schema.fields
        self._documents = JsonDocuments(schema.fields)
        read = [read_type(field.type) for field in schema.fields]
        self._read_fields = None if None in read else pa.schema(list(zip(schema.fields.names, read, strict=True)))
        """The fields as Arrow's reader makes them; None if it cannot make one."""
        self._parse = arrow_json.ParseOptions(explicit_schema=self._read_fields, unexpected_field_behavior="ignore")
        self._last_misfit: str | None = None
        """What the misfits of the last chunk have, as for `_with_field`. The next chunk is likely to have some, and is not read in vain."""

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the values of a chunk: nearly all at once."""
        present = values.drop_null() if values.null_count else values
        rows, malformed = self._of_present(present)
        if values.null_count:
            where = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            rows = _spread(rows, where, len(values))
            malformed = [MalformedValue(int(where[bad.row]), bad.reason) for bad in malformed]
        return DecodedValues(rows, malformed)

    def _of_present(self, values: pa.BinaryArray) -> tuple[pa.StructArray, list[MalformedValue]]:
        """Decode values of which none is null: by Arrow at once, and what does not fit there by Python. The order stays."""
        blamed = _no_objects(values) | self._misfits_as_before(values)
        if self._read_fields is None:
            blamed = np.ones(len(values), bool)
        elif not blamed.any():
            try:
                return self._read(values), []
            except _UNREADABLE as e:
                blamed = self._blamed(e, values)
        rows, blamed = self._read_others(values, blamed)
        suspects = np.flatnonzero(blamed)
        documents, reasons = self._documents.decode(values.take(pa.array(suspects)).to_pylist())
        order = np.empty(len(values), np.int64)
        order[np.flatnonzero(~blamed)] = np.arange(len(rows))
        order[suspects] = len(rows) + np.arange(len(suspects))
        together = pa.concat_arrays([rows, documents]).take(pa.array(order))
        return together, [MalformedValue(int(suspects[row]), reason) for row, reason in reasons]

    def _read_others(self, values: pa.BinaryArray, blamed: Mask) -> tuple[pa.StructArray, Mask]:
        """Read all values but those that are blamed, and those that come to be blamed meanwhile, in MOST_READS tries at most.

        Returns:
            The rows, without the blamed values; and which values are blamed in the end: all of them if each try was in vain.
        """
        if self._read_fields is not None:
            for _ in range(MOST_READS):
                positions = np.flatnonzero(~blamed)
                rest = values.take(pa.array(positions))
                try:
                    return self._read(rest), blamed
                except _UNREADABLE as e:
                    blamed[positions[self._blamed(e, rest)]] = True
        return pa.array([], pa.struct(list(self._fields))), np.ones(len(values), bool)

    def _read(self, values: pa.BinaryArray) -> pa.StructArray:
        """Read values, each of which begins and ends as an object. One of _UNREADABLE if one does not fit."""
        if not len(values):
            return pa.array([], pa.struct(list(self._fields)))
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")[0].as_buffer()
        text = b"".join((lines, b"\n"))  # without the last line end, the last value would be a block of its own
        one_block = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = arrow_json.read_json(pa.BufferReader(text), read_options=one_block, parse_options=self._parse)
        if table.num_rows != len(values):
            raise _DocumentsError(f"{table.num_rows} documents in {len(values)} values")
        columns = [typed(_whole(table.column(f.name)), f.type) for f in self._fields]
        return struct_of(columns, self._fields, pa.array(np.zeros(len(values), bool)))

    def _misfits_as_before(self, values: pa.BinaryArray) -> Mask:
        """Return which values have the field that the last misfits had, with a value of that kind. If none has, that is forgotten."""
        if self._last_misfit is None:
            return np.zeros(len(values), bool)
        misfits = _with_field(values, self._last_misfit)
        if not misfits.any():
            self._last_misfit = None
        return misfits

    def _blamed(self, error: Exception, values: pa.BinaryArray) -> Mask:
        """Return which of these values may have made Arrow's reader raise an error: at least one, and all if the error does not tell.

        If the error names a field, that is noted for the next chunk, see `_misfits_as_before`.
        """
        blamed = np.zeros(len(values), bool)
        if (row := _row_of(error)) is not None:
            _blame(blamed, row)
            if changed := _CHANGED.search(str(error)):
                path, kind = changed.groups()
                self._last_misfit = f'{re.escape(path.rpartition("/")[2])}"\\s*:\\s*{_BEGINS.get(kind, ".")}'
                blamed |= _with_field(values, self._last_misfit)
            if blamed.sum() <= 2:
                self._blame_the_next(values, row + 1, blamed)
        elif isinstance(error, _DocumentsError):
            blamed |= _matching(values, r"\}\s*\{")
        elif (converted := _CONVERSION.search(str(error))) and converted[1] in _DIGITS:
            blamed |= _matching(values, _NO_WHOLE_NUMBER % _DIGITS[converted[1]])
        return blamed if blamed.any() else np.ones(len(values), bool)

    def _blame_the_next(self, values: pa.BinaryArray, begin: int, blamed: Mask) -> None:
        """Blame the values from `begin` on that are no JSON. Each read stops at one of them, and the next read begins behind it.

        After MOST_ERRORS of them all values that are left are blamed.
        """
        for _ in range(MOST_ERRORS):
            try:
                self._read(values.slice(begin))
                return
            except _UNREADABLE as e:
                row = _row_of(e)
                if row is None:
                    return
                _blame(blamed, begin + row)
                begin += row + 1
        blamed[begin:] = True


def _row_of(error: Exception) -> int | None:
    """Return the row that an error of Arrow's reader names; None if it names none."""
    found = _ROW.search(str(error))
    return int(found[1]) if found else None


def _blame(blamed: Mask, row: int) -> None:
    """Blame the value of a row, and the one before it: what is behind a document counts as the next row, also behind the last one."""
    blamed[max(row - 1, 0) : row + 1] = True


def _no_objects(values: pa.BinaryArray) -> Mask:
    """Return which values cannot be one JSON object: they are no UTF-8, or do not begin and end as an object does."""
    has_braces = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if pc.all(has_braces).as_py() is not False:
        suspects = np.zeros(len(values), bool)
    else:
        suspects = ~has_braces.to_numpy(zero_copy_only=False)
        some = np.flatnonzero(suspects)
        suspects[some] = ~_matching(values.take(pa.array(some)), r"(?s)\A[ \t\r\n]*\{.*\}[ \t\r\n]*\z")
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        suspects |= np.array([not _is_text(value) for value in values.to_pylist()], bool)
    return suspects


def _is_text(value: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _matching(values: pa.BinaryArray, pattern: str) -> Mask:
    """Return which values match a regular expression, in the syntax of Arrow."""
    return pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)


def _with_field(values: pa.BinaryArray, field: str) -> Mask:
    """Return which values have a field. `field`: its name behind the first quote and how its value begins, as a regular expression.

    Values have many quotes, and a search that begins with one takes twice as long. So it is looked for where the rest was found.
    """
    found = _matching(values, field)
    some = np.flatnonzero(found)
    found = found.copy()
    found[some] = _matching(values.take(pa.array(some)), f'"{field}')
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of a table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _spread(rows: pa.StructArray, where: Any, length: int) -> pa.StructArray:
    """Return rows with null rows between them, so that row i is at `where[i]`."""
    order = np.full(length, -1, np.int64)
    order[where] = np.arange(len(rows))
    return rows.take(pa.array(order, mask=order < 0))
