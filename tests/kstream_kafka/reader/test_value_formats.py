"""The formats of values, without Spark: what each makes of a chunk. The contract of all of them is `ValueFormatContract`."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
from kstream_kafka.reader.value_formats import FORMATS, DecodedValues, MalformedValue, ValueSchema


def binary(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


class ValueFormatContract:
    """What every format keeps. A format inherits it, and says how its values look."""

    schema: ValueSchema
    good: bytes
    bad: bytes

    def decoded(self, *values: bytes | None) -> DecodedValues:
        return self.schema.open().decode(binary(*values))

    def test_each_value_has_a_row_of_the_fields(self):
        rows = self.decoded(self.good, self.good).rows
        assert rows.type == pa.struct(list(self.schema.fields))
        assert len(rows) == 2 and rows.null_count == 0
        rows.validate(full=True)

    def test_the_row_of_a_record_without_a_value_is_null_and_fits(self):
        found = self.decoded(None, self.good, None)
        assert found.rows.is_null().to_pylist() == [True, False, True]
        assert list(found.malformed) == []

    def test_a_chunk_may_have_no_value_at_all(self):
        assert len(self.decoded().rows) == 0
        assert self.decoded(None, None).rows.to_pylist() == [None, None]

    def test_a_value_that_does_not_fit_costs_no_other_one(self):
        found = self.decoded(self.good, self.bad, None, self.good, self.bad)
        assert [bad.row for bad in found.malformed] == [1, 4]
        assert all(bad.reason for bad in found.malformed)
        good = self.decoded(self.good).rows[0].as_py()
        assert found.rows.to_pylist() == [good, None, None, good, None]
        found.rows.validate(full=True)

    def test_a_slice_of_a_chunk_is_decoded_alone(self):
        values = binary(self.bad, self.good, None, self.bad)
        found = self.schema.open().decode(values.slice(1, 2))
        assert found.rows.is_null().to_pylist() == [False, True]
        assert list(found.malformed) == []

    def test_a_decoder_decodes_chunk_after_chunk(self):
        decoder = self.schema.open()
        decoder.decode(binary(self.bad, self.good))
        assert list(decoder.decode(binary(self.good)).malformed) == []

    def test_the_schema_travels_into_a_task(self):
        assert pickle.loads(pickle.dumps(self.schema)) == self.schema


class TestText(ValueFormatContract):
    schema = ValueSchema("text", pa.schema([("value", pa.string())]))
    good, bad = "grüße".encode(), b"gr\xfc\xdfe"

    def test_a_value_is_a_string_and_an_empty_one_is_empty(self):
        assert self.decoded(b"a", b"", "ß".encode()).rows.field("value").to_pylist() == ["a", "", "ß"]

    def test_the_reason_says_where_the_bytes_are_no_text(self):
        assert list(self.decoded(b"a", b"b\xff").malformed) == [MalformedValue(1, "is no UTF-8: invalid start byte at byte 1")]

    def test_a_query_need_not_name_the_field(self):
        fields = FORMATS["text"].fields
        assert fields is not None and fields({}) == self.schema.fields


def test_the_formats_need_no_pyspark():
    loads = "import sys; import kstream_kafka.reader.value_formats; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], check=False).returncode == 0
