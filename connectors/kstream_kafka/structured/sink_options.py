"""SinkOptions: the options of `writeStream.format("kstream")` and `write.format("kstream")`. Pure.

SINK_OPTIONS is the table of all of them; the tables of docs/structured.md are generated from it (`python -m
kstream_kafka.structured.sink_options`). As with the source, an unknown option is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.nearest_name import did_you_mean, nearest_names
from kstream.storage import StorePlace
from kstream.storage.open import OBJECT_STORES, scheme_of
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.schema_registry import PREFIX
from kstream_kafka.client.transaction import check_properties
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.registry_options import SCHEMA_ID, registry_of
from kstream_kafka.structured.option_kinds import KINDS, Kind
from kstream_kafka.structured.options import (
    KAFKA,
    OF_REGISTRY,
    OPTIONS,
    REFUSED_PARAMETERS,
    Option,
    Query,
    kafka_params,
    markdown_tables,
    of_kafka,
    parsed,
)
from kstream_kafka.structured.places import is_absolute

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
FAIL, KEEP = "fail", "keep"
SPOOLS = "kstream-spools"
"""The folder in a checkpoint for spools."""
SCHEMA, SUBJECT, TEXT = "value.schema", "value.schema.subject", "text"
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BOTH: tuple[Query, ...] = ("stream", "batch")
_STREAM: tuple[Query, ...] = ("stream",)

SINK_OPTIONS = (
    Option("topic", "text", "", _BOTH, "The topic of all records. It wins over the column `topic`, which has that of each one."),
    Option(
        "delivery",
        "delivery",
        EXACTLY_ONCE,
        _BOTH,
        f"`{EXACTLY_ONCE}` writes each batch in one transaction, beside the driver. `{AT_LEAST_ONCE}` writes from the tasks: what "
        "runs again is there again.",
    ),
    Option(
        "outputChanged",
        "output changed",
        FAIL,
        _STREAM,
        "If a batch that is written has other records at its next try: `fail` ends the query, `keep` keeps what is written.",
    ),
    Option(
        "name",
        "text",
        "",
        ("batch",),
        "Which output of `foreachBatch` a frame is. With a name it is written once, as a stream is: each name of a query has its own "
        "receipts.",
    ),
    Option(
        "value.format",
        "format",
        "",
        _BOTH,
        "Encodes the column `value`: a STRUCT as `json`, or as `avro` or `protobuf` by a [schema registry](schema-registry.md). `text` "
        "checks that it is a STRING. Else it is written as it is.",
    ),
    Option(SCHEMA_ID, "number", "", _BOTH, "The id of the schema of the values in the registry. Protobuf needs it."),
    Option(SCHEMA, "text", "", _BOTH, "The schema of Avro values, as text, in place of its id. It is registered if it is not there."),
    Option(SUBJECT, "text", "`topic` and `-value`", _BOTH, "The subject of `value.schema` in the registry."),
    Option("audit", "bool", "true", _STREAM, "Whether each batch leaves an entry for `kstream audit`, in the topic `kstream-audit`."),
    Option("prefix", "prefix", "kstream", _BOTH, "Begins the names of the topics of receipts and audit, and the transactional ids."),
    Option(
        "spoolLocation",
        "place",
        "`kstream-spools` in `checkpointLocation`",
        _BOTH,
        "Where tasks put the records of large batches until the commit: a directory or URL that driver and executors share.",
    ),
    Option("checkpointLocation", "text", "", _STREAM, "The checkpoint of the query, as for any query of Spark."),
    Option("queryName", "text", "", _STREAM, "The name of the query, as for any query of Spark."),
)
"""Every option of the sink, except the Kafka parameters `kafka.…`."""

SINK_REFUSED = {
    "path": ("is no place in Kafka", "Call start() or save() without a path, and name the topic by the option topic."),
    "asyncProgressTrackingEnabled": (
        "would let Spark forget batches that are written, and run them again with other records",
        "Leave it out.",
    ),
}
"""Options that Spark has and the sink refuses → the reason, and what to do."""

_SERIALIZER = (
    "would be a Java class, which nothing here can call",
    "The columns key and value are text or bytes; value.format encodes others.",
)
SINK_REFUSED_PARAMETERS = {
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "transactional.id": ("names the transactions, and the sink names them itself", "Set the option prefix, if another program has them."),
    **{name: words for name, words in REFUSED_PARAMETERS.items() if name.endswith("_cb") or name == "interceptor.classes"},
}
"""Kafka parameters that the sink refuses → the reason, and what to do."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink, parsed. Immutable; can be pickled. `repr` shows no secret.

    Attributes:
        params: the Kafka parameters.
        topic: the topic of all records; None if the column `topic` has them.
        delivery: EXACTLY_ONCE or AT_LEAST_ONCE.
        keeps: whether a batch that is written stands, though it has other records now.
        name: which output of `foreachBatch` a frame is; None if it leaves no receipt.
        audit: whether each batch leaves an entry in the topic of the audit.
        prefix: begins the names of the topics of receipts and audit, and the transactional ids.
        place: where tasks may spool files; None for nowhere.
        value_format: the format in which the column `value` is encoded; None if it is text or bytes.
        format_options: the options of the format: `schema.registry.…`, and either SCHEMA_ID or SCHEMA and SUBJECT.
        checkpoint: that of the query; None if it is not known, or Python workers cannot open it without more options.
    """

    params: KafkaParams
    topic: str | None = None
    delivery: str = EXACTLY_ONCE
    keeps: bool = False
    name: str | None = None
    audit: bool = True
    prefix: str = "kstream"
    place: StorePlace | None = None
    checkpoint: StorePlace | None = None
    value_format: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    @property
    def notes(self) -> StorePlace | None:
        """Where it is stored that the query has receipts: in the checkpoint, or where spools are; None for nowhere."""
        return self.place if self.checkpoint is None else _spools_of(self.checkpoint)

    @staticmethod
    def parse(given: Mapping[str, str]) -> SinkOptions:
        """Parse the options of a sink. Sends no request.

        Args:
            given: name → text, the names in any case.

        Raises:
            SourceOptionError: an option is unknown, refused or malformed.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
        """
        texts = {name.lower(): text for name, text in given.items()}
        for name in texts:
            if not name.startswith((KAFKA, PREFIX)) and name not in _NAMES:
                raise _unknown(name)
        values = parsed(SINK_OPTIONS, texts, _KINDS)
        params = kafka_params(texts, SINK_REFUSED_PARAMETERS)
        check_properties(params.sink(), params.transaction_ms)
        checkpoint = _checkpoint(values.get("checkpointLocation"))
        return SinkOptions(
            params=params,
            topic=values.get("topic"),
            delivery=values.get("delivery", EXACTLY_ONCE),
            keeps=values.get("outputChanged") == KEEP,
            name=values.get("name"),
            audit=values.get("audit", True),
            prefix=values.get("prefix", "kstream"),
            place=values.get("spoolLocation") or (checkpoint and _spools_of(checkpoint)),
            checkpoint=checkpoint,
            value_format=values.get("value.format"),
            format_options=_format_options(texts, values.get("value.format"), values.get("topic")),
        )


def _format_options(texts: Mapping[str, str], format: str | None, topic: str | None) -> dict[str, str]:
    """Return the options of the format of the values, SUBJECT by its default if it is needed; empty without a registry. Sends no request.

    Raises:
        SourceOptionError: an option is missing, or does not go with another one.
        KafkaConfigError: a setting of the registry cannot work, or the schema is none.
    """
    given = {name: text for name, text in texts.items() if name.startswith(PREFIX) or name in (SCHEMA_ID, SCHEMA, SUBJECT)}
    if format not in OF_REGISTRY:
        if given:
            hint = f"Set the option value.format to {' or '.join(OF_REGISTRY)}."
            raise SourceOptionError(next(iter(given)), "is for values whose schemas are in a schema registry", hint)
        return {}
    registry_of(given)
    if format == "protobuf":
        if SCHEMA in given:
            raise SourceOptionError(SCHEMA, "is for Avro", f"Register the file, and give its id by {SCHEMA_ID}.")
        if SCHEMA_ID not in given:
            raise SourceOptionError(SCHEMA_ID, "is missing", "Protobuf values need the id of their file.")
    elif (SCHEMA_ID in given) == (SCHEMA in given):
        reason = f"is given together with {SCHEMA}" if SCHEMA in given else "is missing"
        raise SourceOptionError(SCHEMA_ID, reason, f"Give the id of the schema, or its text by {SCHEMA}.")
    if SCHEMA not in given:
        if SUBJECT in given:
            raise SourceOptionError(SUBJECT, f"is for {SCHEMA}", "A schema that is given by its id has its subject.")
        return given
    if SUBJECT not in given and topic is None:
        raise SourceOptionError(SUBJECT, "is missing, and there is no option topic", "Give one of the two.")
    return {SUBJECT: f"{topic}-value", **given}


def check_appends(overwrite: bool) -> None:
    """Raise SourceOptionError if a batch query has the save mode "overwrite", by which Spark would replace what is there."""
    if overwrite:
        raise SourceOptionError("mode", "is 'overwrite', and records in Kafka stay", "Give 'append'.")


_NAMES = frozenset(option.name.lower() for option in SINK_OPTIONS)


def _unknown(name: str) -> SourceOptionError:
    """Return the error for an option that does not exist, with the nearest names, or for one that is refused or of the source."""
    for key, words in SINK_REFUSED.items():
        if name == key.lower():
            return SourceOptionError(key, *words)
    for option in OPTIONS:
        if name == option.name.lower():
            return SourceOptionError(option.name, "is for reading", "The sink has none of that name.")
    near = nearest_names(name, [option.name for option in SINK_OPTIONS])
    return SourceOptionError(name, "is unknown", did_you_mean(near) or "docs/structured.md has all options.")


# -- the kinds of values


def _text(text: str) -> str:
    """Return a text. ValueError if it is empty."""
    if not text:
        raise ValueError
    return text


def _one_of(*known: str) -> Kind:
    """Return the kind of an option that has one of these values, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in known:
            raise ValueError
        return text.lower()

    return parse, " or ".join(known)


def _checkpoint(text: str | None) -> StorePlace | None:
    """Return the place of a checkpoint; None if it is not known, or Python workers cannot open it without more options."""
    if text is None or scheme_of(text) not in {"", "file", *OBJECT_STORES}:
        return None
    return StorePlace(text.rstrip("/"), exclusive=False) if is_absolute(text) else None


def _spools_of(checkpoint: StorePlace) -> StorePlace:
    """Return the place for spools in a checkpoint."""
    return StorePlace(f"{checkpoint.url}/{SPOOLS}", exclusive=False)


def _prefix(text: str) -> str:
    """Return the beginning of a topic's name. ValueError if it cannot be one."""
    if not _PREFIX.fullmatch(text):
        raise ValueError
    return text


_KINDS: dict[str, Kind] = {
    **KINDS,
    "text": (_text, "some text"),
    "delivery": _one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
    "output changed": _one_of(FAIL, KEEP),
    "prefix": (_prefix, "the beginning of a topic's name, such as kstream"),
}


if __name__ == "__main__":
    refused: Any = SINK_REFUSED | of_kafka(SINK_REFUSED_PARAMETERS)
    print(markdown_tables(SINK_OPTIONS, refused))
