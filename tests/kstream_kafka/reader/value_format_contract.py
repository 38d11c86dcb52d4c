"""ValueFormatContract: what every format of values keeps."""

from __future__ import annotations

import pickle

import pyarrow as pa
from kstream_kafka.reader.value_formats import DecodedValues, ValueSchema


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
