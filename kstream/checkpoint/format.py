"""The stored form of every record: one canonical JSON object with its kind, version and checksum; and the fields of a plan.

Canonical means: sorted keys, no white space, ASCII. A record is valid only if its parsed fields encode to the same bytes again. So a
change of any byte is found, inside the checksum and outside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.declared_types import check_types
from kstream.errors import CorruptRecordError, FormatVersionError
from kstream.storage import FileStore

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, Any]
"""The fields of a record, without kind, version and checksum. Nothing is known of their values but that they are JSON."""
VERSION = 1
VERSIONS = {"graph": 2, "plan": 2}
"""The newest versions of the kinds whose form has changed. All other kinds have VERSION."""
_PLAN_WITHOUT_KINDS = 1
"""The version of plans whose inputs do not say their kind: those of before, and tombstones."""
_ALSO_READ = {"plan": (_PLAN_WITHOUT_KINDS,)}
"""The older versions that are read, too."""
_LONGEST_REASON = 300
"""The characters of a message that repeats a value of a record."""
_OF_ANOTHER_FORM = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of code that is given other JSON values than it was written for."""


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def encode(kind: str, fields: dict[str, Any], version: int | None = None) -> bytes:
    """Encode a record as bytes.

    Args:
        kind: the kind of the record.
        fields: JSON values, without kind, version and checksum.
        version: that of the form of the fields; None for the newest one of the kind.

    Raises:
        TypeError, ValueError: a field is not a JSON value.
    """
    record = {**fields, "kind": kind, "version": version or VERSIONS.get(kind, VERSION)}
    digest = hashlib.sha256(_canonical(record)).hexdigest()
    return _canonical({**record, "checksum": digest})


def decode(kind: str, data: bytes, path: str, make: Callable[[dict[str, Any]], T], named: Mapping[str, int] | None = None) -> T:
    """Make the object that the bytes of a record stand for. All records are read here.

    A checksum does not say that kstream has written the record. So whatever goes wrong in `make` is the fault of the record.

    Args:
        kind: the kind that the record must have.
        data: its bytes.
        path: the path of the record, for messages.
        make: makes the object from the fields; pure. The object has the types that its class declares, or is refused (`check_types`).
        named: the fields that are also in the name of the record, with the values there; see `check_name`.

    Raises:
        CorruptRecordError: the record is damaged, of another kind, or that of another name; or its fields are not those of an object.
        FormatVersionError: a newer kstream has written the record.
    """
    fields = _decode_fields(kind, data, path)
    check_name(path, fields, named or {})
    return made(fields, path, make)


def made(fields: dict[str, Any], path: str, make: Callable[[dict[str, Any]], T]) -> T:
    """Make an object from the fields of a record, or of another JSON object that somebody else has written; see `decode`."""
    with reading(path):
        found = make(fields)
        check_types(found)
    return found


@contextmanager
def reading(path: str) -> Generator[None]:
    """Turn an error of the body, which makes an object of stored values, into a CorruptRecordError. `path`: that of their record."""
    try:
        yield
    except _OF_ANOTHER_FORM as e:
        raise _corrupt(path, f"its contents are of another form, {type(e).__name__}: {str(e)[:_LONGEST_REASON]}") from e


def _decode_fields(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """Return the fields of a record, without kind, version and checksum. CorruptRecordError, FormatVersionError; see `decode`."""
    try:
        found: object = json.loads(data)
    except RecursionError as e:
        raise _corrupt(path, "its JSON is nested too deep") from e
    except ValueError as e:
        raise _corrupt(path, f"not JSON: {e}") from e
    record = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if record.get("kind") != kind:
        raise _corrupt(path, f"not a record of kind {kind!r}")
    version, supported = record.get("version"), VERSIONS.get(kind, VERSION)
    if isinstance(version, int) and version > supported:
        raise FormatVersionError(
            f"{path} has format version {version}, this kstream reads up to {supported}: upgrade kstream to read it",
            path=path,
            version=version,
            supported=supported,
        )
    fields = {k: v for k, v in record.items() if k not in ("kind", "version", "checksum")}
    try:
        whole = encode(kind, fields, next((older for older in _ALSO_READ.get(kind, ()) if older == version), supported)) == data
    except (ValueError, RecursionError):  # a damaged number can read as infinity, which is no JSON value; JSON can be nested too deep
        whole = False
    if not whole:
        raise _corrupt(path, "its checksum does not fit its bytes")
    return fields


def check_name(path: str, fields: Fields, named: Mapping[str, int]) -> None:
    """Check that the fields of a record agree with its name: a file that was renamed or copied holds the record of another batch.

    Args:
        path: the path of the record, for the message.
        fields: the fields of the record.
        named: the fields that are also in the name, with the values there.

    Raises:
        CorruptRecordError: a value differs. The message has both values.
    """
    if all(fields.get(key) == value for key, value in named.items()):
        return
    inside = ", ".join(f"{key} {fields.get(key)}" for key in named)
    outside = ", ".join(f"{key} {value}" for key, value in named.items())
    raise CorruptRecordError(
        f"{path} holds the record of {inside}, but its name says {outside}: the file was copied or renamed. Give the file its own name "
        "back, or, if it is a copy, move it out of the checkpoint.",
        path=path,
        reason=f"holds the record of {inside}",
    )


def _corrupt(path: str, reason: str) -> CorruptRecordError:
    """Return the error about a damaged record."""
    return CorruptRecordError(
        f"{path} is damaged ({reason}). Its batch may have run. Restore the file from a copy, or give the batch up with "
        "--forget-batch (its offsets are then read again by the next batch).",
        path=path,
        reason=reason,
    )


def plan_fields(plan: BatchPlan) -> dict[str, Any]:
    """Return the plan as JSON values. There is a field `names`, `outputs` or `parallelism` only if the plan has such."""
    stream_names = {"names": {str(k): v for k, v in plan.names.items()}} if plan.names else {}
    outputs = {"outputs": list(plan.outputs)} if plan.outputs else {}
    parallelism = {} if plan.parallelism is None else {"parallelism": plan.parallelism}
    return {
        **stream_names,
        **outputs,
        **parallelism,
        "time": plan.time.milliseconds,
        "epoch": plan.epoch,
        "nonce": plan.nonce,
        "void": plan.void,
        "floor": plan.floor.milliseconds,
        "after": plan.after.milliseconds,
        "inputs": {str(k): dict(v) for k, v in plan.inputs.items()},
        "records": {str(k): v for k, v in plan.num_records.items()},
    }


def plan_of(fields: Fields) -> BatchPlan:
    """Make a plan from its fields: the inverse of `plan_fields`."""
    return BatchPlan(
        time=Time(fields["time"]),
        epoch=fields["epoch"],
        nonce=fields["nonce"],
        inputs={int(k): v for k, v in fields["inputs"].items()},
        num_records={int(k): int(v) for k, v in fields["records"].items()},
        floor=Time(fields["floor"]),
        after=Time(fields["after"]),
        void=fields["void"],
        names={int(k): v for k, v in fields.get("names", {}).items()},
        outputs=tuple(fields.get("outputs", ())),
        parallelism=fields.get("parallelism"),
    )


def encode_plan(plan: BatchPlan) -> bytes:
    """Encode a plan as a record. Version 2 has inputs that say their kind: a kstream that would guess it refuses the record."""
    says_kinds = any("kind" in data for data in plan.inputs.values())
    return encode("plan", plan_fields(plan), VERSIONS["plan"] if says_kinds else _PLAN_WITHOUT_KINDS)


def read_plan(store: FileStore, time: Time, epoch: int) -> BatchPlan:
    """Read the plan of a batch time and an epoch. Blocks: one read.

    Raises:
        MissingFileError: there is no such plan.
        StorageError: the store failed.
        CorruptRecordError: the record is damaged, or it is the plan of another batch or epoch.
    """
    name = names.plan(time, epoch)
    return decode("plan", store.read(name), store.path(name), plan_of, {"time": time.milliseconds, "epoch": epoch})


def decode_plan(data: bytes, path: str) -> BatchPlan:
    """Decode the record of a plan. CorruptRecordError, FormatVersionError; `path` is for their messages."""
    return decode("plan", data, path, plan_of)
