"""SchemaRegistry: a Confluent Schema Registry, asked by confluent_kafka's own client. The only door to that client.

Each process has one client of a registry. A schema is asked for once: the client keeps it by its id. UnknownIds decides how often the
registry is asked for an id that it does not know.

The names of the settings are those of that client: `url`, `basic.auth.user.info`, `ssl.ca.location` … The options of a data source have
them behind `schema.registry.`, and so do all messages.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kstream.errors import MissingDependencyError
from kstream.nearest_name import did_you_mean, nearest_names
from kstream.secret import REDACTED, add_secrets, looks_secret, redact
from kstream_kafka.client.redaction import property_names
from kstream_kafka.client.secrets import SecretSource
from kstream_kafka.client.unknown_ids import AGAIN_AFTER_S, MOST, UnknownIds
from kstream_kafka.errors import KafkaConfigError, SchemaRegistryRefusedError, SchemaRegistryUnreachableError

logger = logging.getLogger("kstream.kafka")

PREFIX = "schema.registry."
"""Begins the names of the settings among the options of a data source, and in messages."""
INSTALL = "pip install 'kstream-spark[schema-registry]'"
AVRO, PROTOBUF = "AVRO", "PROTOBUF"
"""The types of schemas, as the registry writes them."""
TIMEOUT_S = 10
"""The timeout of a request. The client itself would wait for ever."""

_PUBLIC = property_names(
    """
    url ssl.ca.location ssl.certificate.location ssl.key.location timeout cache.capacity cache.latest.ttl.sec max.retries retries.wait.ms
    retries.max.wait.ms bearer.auth.credentials.source bearer.auth.issuer.endpoint.url bearer.auth.scope bearer.auth.logical.cluster
    bearer.auth.identity.pool.id
    """
)
_SECRET = property_names("basic.auth.user.info ssl.key.password proxy bearer.auth.token bearer.auth.client.id bearer.auth.client.secret")
_NUMBERS = property_names("timeout cache.capacity cache.latest.ttl.sec max.retries retries.wait.ms retries.max.wait.ms")
_NOT_FOUND = 404
_UNKNOWN = frozenset((40401, 40402, 40403))
"""The registry's codes for a subject, a version and a schema that it does not know. Any other 404 is of a wrong path, or of a proxy."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        id: its id.
        kind: AVRO, PROTOBUF or JSON.
        text: the schema; that of Protobuf as a FileDescriptorProto in Base64.
        references: (name, text) of each schema that it needs, and of those that they need, before those that need them.
    """

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NeededSchema:
    """A schema that is to be registered, because another one refers to it.

    Attributes:
        name: the name by which it is referred to, which is its subject, too.
        text: the schema.
        references: the schemas that it refers to itself.
    """

    name: str
    text: str
    references: tuple[NeededSchema, ...] = ()


class UnknownSchemaError(ValueError):
    """The registry does not know a schema, now. It may know it in a minute."""


class SchemaRegistry:
    """A schema registry and the settings of its client. Immutable; can be pickled. Its text shows no secret.

    Example:
        registry = SchemaRegistry({"url": "https://registry:8081", "basic.auth.user.info": Path("/run/secrets/registry")})
    """

    def __init__(self, settings: Mapping[str, Any] | str) -> None:
        """Note the settings. Sends no request.

        Args:
            settings: the settings of confluent_kafka's SchemaRegistryClient by their names, or only the URL. Numbers may be texts. A secret
                may be a `pathlib.Path`, whose file has it, or a function without arguments that returns it.

        Raises:
            KafkaConfigError: a setting is missing, unknown, or no number.
        """
        given = {"url": settings} if isinstance(settings, str) else dict(settings)
        if not given.get("url"):
            raise KafkaConfigError(f"{PREFIX}url", "is missing", "Give the address of the schema registry.")
        for name in given:
            if name not in _PUBLIC | _SECRET:
                near = did_you_mean(nearest_names(name, _PUBLIC | _SECRET))
                raise KafkaConfigError(f"{PREFIX}{name}", "is no setting of the client of a schema registry", near)
        self._settings = {name: _checked(name, value) for name, value in sorted(given.items())}

    @property
    def url(self) -> str:
        """The address of the registry, without a password."""
        return redact(str(self._settings["url"]))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, with the sources of secrets. Another registry can be made of them."""
        return dict(self._settings)

    def not_storable(self) -> list[str]:
        """Return the names of the settings that may hold a secret, which are never stored with a checkpoint."""
        return [f"{PREFIX}{name}" for name, value in self._settings.items() if not _is_public(name, value)]

    def schema(self, schema_id: int, is_given: bool = False) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry does not know it. Blocks on the registry, the first time in this process.

        Args:
            schema_id: the id.
            is_given: whether a user has given it. An id of a record may be damaged: after too many unknown ones within a minute, other
                ids that this process has not met are taken for unknown, without a request.

        Raises:
            SchemaRegistryUnreachableError: no registry answered, after the retries of its client.
            SchemaRegistryRefusedError: it refuses the request.
            MissingDependencyError: the packages of the client are missing.
        """
        return self._client().schema(schema_id, is_given)

    def schema_of_kind(self, schema_id: int, kind: str, is_given: bool = False) -> RegisteredSchema:
        """Return the schema of an id, as `schema`.

        Args:
            schema_id: the id.
            kind: AVRO or PROTOBUF.
            is_given: as for `schema`.

        Raises:
            UnknownSchemaError: the registry does not know it.
            ValueError: it is of another kind.
            Exception: as `schema`.
        """
        found = self.schema(schema_id, is_given)
        if found is None:
            raise UnknownSchemaError(f"the schema registry {self.url} has no schema {schema_id}")
        if found.kind != kind:
            raise ValueError(f"schema {schema_id} of the schema registry {self.url} is of {found.kind}, not of {kind}")
        return found

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if there is none. Blocks on the registry; raises as `schema`."""
        return self._client().latest(subject)

    def register(self, subject: str, kind: str, text: str, references: tuple[NeededSchema, ...] = ()) -> int:
        """Return the id of a schema of a subject, which is registered if it is not yet. Blocks on the registry.

        Args:
            subject: the subject.
            kind: AVRO or PROTOBUF.
            text: the schema, as in RegisteredSchema.
            references: the schemas that it refers to, which are registered first.

        Raises:
            SchemaRegistryRefusedError: it refuses the schema, such as one that is not compatible.
            Exception: as `schema`.
        """
        return self._client().register(subject, kind, text, references)

    def _client(self) -> _Client:
        """Return the client of this process."""
        identity = tuple((name, v.identity if isinstance(v, SecretSource) else v) for name, v in self._settings.items())
        with _lock:
            if identity not in _clients:
                _clients[identity] = _Client(self._settings, self.url)
            return _clients[identity]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaRegistry) and repr(self) == repr(other) and self._client() is other._client()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = {name: value if _is_public(name, value) else REDACTED for name, value in self._settings.items()}
        return f"SchemaRegistry({shown})"


def _checked(name: str, value: Any) -> Any:
    """Return the value of a setting as the client takes it, or its source. KafkaConfigError if it should be a number and is none."""
    if name in _SECRET and (isinstance(value, (Path, SecretSource)) or callable(value)):
        return value if isinstance(value, SecretSource) else SecretSource(f"{PREFIX}{name}", value)
    if name not in _NUMBERS or isinstance(value, int | float):
        return value
    try:
        return float(value)
    except ValueError:
        raise KafkaConfigError(f"{PREFIX}{name}", f"is {value!r}", "It must be a number.") from None


def _is_public(name: str, value: Any) -> bool:
    """Return whether a setting may be shown and stored."""
    return isinstance(value, str | int | float) and not looks_secret(name, str(value), public=_PUBLIC)


_clients: dict[tuple[tuple[str, Any], ...], _Client] = {}
_lock = threading.Lock()


class _NoRegistryError(ValueError):
    """What answers is no schema registry."""


class _Session(NamedTuple):
    """A client of confluent_kafka, which is thread-safe, and the settings that it was made of, with the values of their sources."""

    values: Mapping[str, Any]
    client: Any


class _Client:
    """The client of one registry in one process. Thread-safe."""

    def __init__(self, settings: Mapping[str, Any], url: str) -> None:
        """Note the settings, with the sources of secrets, and the address for messages. Creates nothing."""
        self._settings, self._url = settings, url
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._met = set[int]()
        """The ids that the registry has known. confluent_kafka's client keeps their schemas."""
        self._unknown = UnknownIds()
        self._has_warned = False

    def schema(self, schema_id: int, is_given: bool) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry does not know it."""
        with self._lock:
            is_sure = is_given or schema_id in self._met
            pauses = AGAIN_AFTER_S if is_sure else self._unknown.pauses(schema_id, time.monotonic())
        if pauses is None:
            return None
        for pause in (0.0, *pauses):
            time.sleep(pause)
            found = self._asked(lambda client: self._registered(client, schema_id, _told(client.get_schema, schema_id, fmt="serialized")))
            if found is not None:
                self._met.add(schema_id)
                return found
        if not is_given:
            self._add_unknown(schema_id)
        return None

    def _add_unknown(self, schema_id: int) -> None:
        """Note that the registry does not know an id. Warns once if they are too many."""
        with self._lock:
            self._unknown.add(schema_id, time.monotonic())
            warns = self._unknown.are_too_many and not self._has_warned
            self._has_warned |= warns
        if warns:
            words = "the schema registry %s did not know %d schema ids within a minute: until one is a minute old no new id is asked for"
            logger.warning(words, self._url, MOST)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if there is none."""

        def ask(client: Any) -> RegisteredSchema:
            newest = _told(client.get_latest_version, subject, "serialized")
            return self._registered(client, newest.schema_id, newest.schema)

        return self._asked(ask)

    def register(self, subject: str, kind: str, text: str, needed: tuple[NeededSchema, ...]) -> int:
        """Return the id of a schema, registered if it is not yet, as are those that it refers to."""

        def ask(client: Any) -> int:
            return _told(client.register_schema, subject, self._with_references(client, kind, text, needed))

        number: int | None = self._asked(ask)
        if number is None:
            raise SchemaRegistryRefusedError(self._url, _NOT_FOUND, f"it has no subject {subject}")
        return number

    def _with_references(self, client: Any, kind: str, text: str, needed: tuple[NeededSchema, ...]) -> Any:
        """Return a schema of the client that names the versions of all it refers to, which are registered. Blocks on the registry."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references: list[Any] = []
        for one in needed:
            schema = self._with_references(client, kind, one.text, one.references)
            _told(client.register_schema, one.name, schema)
            references.append(SchemaReference(one.name, one.name, _told(client.lookup_schema, one.name, schema).version))
        return Schema(text, kind, references)

    def _registered(self, client: Any, schema_id: int, schema: Any) -> RegisteredSchema:
        """Return a schema of the client with all its references. May block on the registry."""
        references: dict[str, str] = {}

        def follow(needed: Any) -> None:
            for reference in needed.references or ():
                if reference.name not in references and not is_built_in(reference.name):
                    found = _told(client.get_version, reference.subject, reference.version, True, "serialized").schema
                    follow(found)
                    references[reference.name] = found.schema_str

        follow(schema)
        return RegisteredSchema(schema_id, schema.schema_type or AVRO, schema.schema_str, tuple(references.items()))

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """Return the answer of the registry; None if what is asked for does not exist. A refused client is replaced if a secret is newer.

        Raises:
            SchemaRegistryUnreachableError, SchemaRegistryRefusedError: as `SchemaRegistry.schema` says.
        """
        session = self._current(None)
        try:
            return self._answer(session, ask)
        except SchemaRegistryRefusedError as e:
            newer = self._current(session) if e.status == 401 else session
            if newer is session:
                raise
        return self._answer(newer, ask)

    def _current(self, refused: _Session | None) -> _Session:
        """Return the session of this process. It is made for the first caller, and again if one was refused and a secret is newer.

        Args:
            refused: the session that the registry has refused; None if there is none. It is returned if no secret is newer.
        """
        session = self._session
        if session is not None and session is not refused:
            return session
        values = self._read()
        if refused is not None and values == refused.values:
            return refused
        made = _Session(values, _new_client(values))
        with self._lock:
            if self._session is None or self._session is refused:
                self._session = made
            return self._session

    def _answer(self, session: _Session, ask: Callable[[Any], Any]) -> Any:
        """Return the answer of the registry to one request."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask(session.client)
        except SchemaRegistryError as e:
            if e.error_code in _UNKNOWN:
                return None
            raise SchemaRegistryRefusedError(self._url, e.http_status_code, redact(str(e.error_message))) from None
        except _errors_of_no_answer() as e:
            if isinstance(e, _NoRegistryError):
                self._forget(session)
            raise SchemaRegistryUnreachableError(self._url, redact(f"{type(e).__name__}: {e}")) from None

    def _forget(self, session: _Session) -> None:
        """Make another client at the next request: this one may have kept an answer that was none."""
        with self._lock:
            if self._session is session:
                self._session = None

    def _read(self) -> dict[str, Any]:
        """Return the settings with the values of their sources. Texts from now on do not show them."""
        values = {name: value.read() if isinstance(value, SecretSource) else value for name, value in self._settings.items()}
        add_secrets(values, _PUBLIC)
        return {"timeout": TIMEOUT_S, **values}


def _told(ask: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the answer to a request of the client, which takes any JSON for that of a registry.

    Raises:
        _NoRegistryError: the answer has another form.
        Exception: an error of the client.
    """
    try:
        told = ask(*arguments, **named)
    except (TypeError, AttributeError) as e:
        raise _NoRegistryError(f"what answers is no schema registry ({type(e).__name__}: {e})") from e
    if told is None or getattr(getattr(told, "schema", told), "schema_str", "") is None:
        raise _NoRegistryError("what answers is no schema registry (the answer has no schema and no id)")
    return told


def is_built_in(name: str) -> bool:
    """Return whether a file of Protobuf comes with its runtime or with confluent_kafka. Pure."""
    return name.startswith(("google/protobuf/", "google/type/", "confluent/"))


def _errors_of_no_answer() -> tuple[type[Exception], ...]:
    """Return the errors of a name, a socket or TLS, of an answer that is no JSON, of the HTTP client, and of the server of the tokens."""
    from confluent_kafka.schema_registry import error

    clients = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]  # the errors of requests are OSErrors
    of_http = [kind for client in clients for kind in (client.HTTPError, client.InvalidURL)]
    of_tokens = [error.OAuthTokenError] if hasattr(error, "OAuthTokenError") else []
    return OSError, ValueError, *of_http, *of_tokens


def _new_client(values: Mapping[str, Any]) -> Any:
    """Create the client. Sends no request.

    Raises:
        MissingDependencyError: one of its packages is missing.
        KafkaConfigError: it refuses a setting.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as e:
        words = f"a schema registry needs packages that are missing ({e}): {INSTALL}, where the driver and the workers run"
        raise MissingDependencyError(words, package=str(e.name), install=INSTALL) from e
    try:
        return SchemaRegistryClient(dict(values))
    except (ValueError, TypeError, OSError) as e:
        raise KafkaConfigError(f"{PREFIX}url", f"or another setting was refused by the client ({redact(str(e))})") from None
