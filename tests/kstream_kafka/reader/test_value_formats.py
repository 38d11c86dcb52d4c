"""The formats of values, without Spark: what each makes of a chunk. The contract of all of them is `ValueFormatContract`."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
from kstream_kafka.reader.value_formats import FORMATS, MalformedValue, ValueSchema

from tests.kstream_kafka.reader.value_format_contract import ValueFormatContract


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
