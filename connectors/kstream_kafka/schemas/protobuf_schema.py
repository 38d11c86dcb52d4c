"""ProtobufSchema: the descriptor of a Protobuf file as a registry has it, and the message classes of its messages, made while the job runs.

A value is framed by the id of the file and by the path of its message in the file: the index of a message, then those of nested ones.
"""

from __future__ import annotations

import base64
import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream.errors import MissingDependencyError
from kstream_kafka.client.schema_registry import INSTALL, PROTOBUF, SchemaRegistry, is_built_in
from kstream_kafka.schemas.framing import HEAD

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

MessagePath: TypeAlias = tuple[int, ...]
"""The index of a message in its file, then in each message the index of the nested one."""
FIRST: MessagePath = (0,)
"""The path of the first message of a file, which is one zero byte."""
_FILE = "default"
_LONGEST_PATH = 100


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A file of Protobuf. Immutable.

    Attributes:
        text: its FileDescriptorProto in Base64.
        references: (name, text) of each file that it imports, and of those that they import, before those that import them.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()

    def message_class(self, path: MessagePath) -> type[Message]:
        """Return the class of a message.

        Raises:
            ValueError: there is none at the path, or the file cannot be used.
            MissingDependencyError: the package of a file that it imports is missing.
        """
        return _message_class(self, path)

    @staticmethod
    def registered(registry: SchemaRegistry, schema_id: int, is_given: bool = False) -> ProtobufSchema:
        """Return a file of the registry. May block on it.

        `is_given`: whether a user has given the id. One of a record may be damaged: see `SchemaRegistry.schema`.

        Raises:
            UnknownSchemaError: the registry does not know it.
            ValueError: it is no schema of Protobuf.
            KafkaError: an error of the registry.
        """
        found = registry.schema_of_kind(schema_id, PROTOBUF, is_given)
        return ProtobufSchema(found.text, found.references)


def check_protobuf() -> None:
    """Check that the packages of Protobuf are there. MissingDependencyError if one is missing."""
    try:
        importlib.import_module("google.protobuf.message_factory")
    except ImportError as e:
        raise MissingDependencyError(f"Protobuf needs protobuf ({e}): {INSTALL}", package="protobuf", install=INSTALL) from e


def message_path(raw: bytes) -> tuple[MessagePath, int]:
    """Return the path of the message of a framed value, and where its bytes begin. Pure. ValueError if the path is damaged."""
    count, at = _number(raw, HEAD)
    if count == 0:
        return FIRST, at
    if not 0 < count <= _LONGEST_PATH:
        raise ValueError(f"the path of the message has {count} parts")
    path: list[int] = []
    for _ in range(count):
        part, at = _number(raw, at)
        path.append(part)
    return tuple(path), at


def path_bytes(path: MessagePath) -> bytes:
    """Return the bytes of a path. Pure."""
    return b"\0" if path == FIRST else b"".join(map(_varint, (len(path), *path)))


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag number at a position, and where it ends. ValueError if it is cut off, or too long."""
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("the path of the message is cut off")


def _varint(number: int) -> bytes:
    """Return a number that is not negative as zigzag bytes, the inverse of `_number`."""
    rest, out = number << 1, bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))


@lru_cache(maxsize=1000)
def _message_class(schema: ProtobufSchema, path: MessagePath) -> type[Message]:
    """Return the class of the message at a path, made once in a process. Errors as `ProtobufSchema.message_class`."""
    from google.protobuf.message_factory import GetMessageClass

    pool, file = _pool(schema)
    inside, name = file.message_type, file.package
    for index in path:
        if not 0 <= index < len(inside):
            raise ValueError(f"its schema has no message {'.'.join(map(str, path))}")
        name = f"{name}.{inside[index].name}" if name else inside[index].name
        inside = inside[index].nested_type
    return GetMessageClass(pool.FindMessageTypeByName(name))


@lru_cache(maxsize=1000)
def _pool(schema: ProtobufSchema) -> tuple[DescriptorPool, Any]:
    """Return a pool of descriptors with the file and all that it imports, and the file. Made once in a process.

    Raises:
        ValueError: the text is no file, or an import is missing.
        MissingDependencyError: the package of an import is missing.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, known, file = DescriptorPool(), set[str](), FileDescriptorProto()

    def add_built_in(name: str) -> None:
        """Add a file that comes with a package."""
        if name in known:
            return
        known.add(name)
        file = _built_in(name)
        for needed in file.dependencies:
            add_built_in(needed.name)
        pool.AddSerializedFile(file.serialized_pb)

    try:
        for name, text in (*schema.references, (_FILE, schema.text)):
            file = FileDescriptorProto.FromString(base64.standard_b64decode(text))
            file.name = name
            for needed in file.dependency:
                if needed not in dict(schema.references):
                    add_built_in(needed)
            pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
            known.add(name)
    except MissingDependencyError:
        raise
    except Exception as e:
        raise ValueError(f"protobuf cannot use its schema: {type(e).__name__}: {e}") from None
    return pool, file


def _built_in(name: str) -> Any:
    """Return the descriptor of a file that comes with a package.

    Raises:
        MissingDependencyError: the package is missing.
        ImportError: no package has the file.
    """
    package = "confluent_kafka.schema_registry." if name.startswith("confluent/") else ""
    module = f"{package}{name.removesuffix('.proto').replace('/', '.')}_pb2"
    try:
        return importlib.import_module(module).DESCRIPTOR
    except ImportError as e:
        if e.name == module or not is_built_in(name):
            raise
        words = f"the Protobuf file {name} needs a package that is missing ({e}): {INSTALL}, where the driver and the workers run"
        raise MissingDependencyError(words, package=str(e.name), install=INSTALL) from e
