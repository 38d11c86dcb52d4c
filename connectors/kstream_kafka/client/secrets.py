"""Secrets that change while a stream runs: values from a file or a function, and the question whether newer ones are there.

The value of a parameter in SECRET may be a `pathlib.Path`, whose file holds the value, or a function without arguments that returns it.
librdkafka takes plain values, at the creation of a client. So each client reads its secrets when it is created. It
reads them again when the brokers refuse it: a client that works keeps its connections, in whatever order the file and the broker change.

A client that is refused is replaced once; then a broker must answer before it is replaced again. Else a function that returns another
wrong password at each call would hide the error for ever. A new client that could not be created has replaced nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kstream.secret import add_secrets, redact
from kstream_kafka.client import oauth
from kstream_kafka.client.redaction import NOT_SECRET, Properties, property_names
from kstream_kafka.errors import KafkaConfigError

SECRET = property_names(
    """
    sasl.username sasl.password ssl.key.password ssl.keystore.password sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    """
)
"""The parameters whose value may be a file or a function."""
FILES = property_names(
    """
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.keystore.location ssl.crl.location sasl.kerberos.keytab
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    """
)
"""The parameters that name files which librdkafka reads when a client is created."""


class SecretSource:
    """The value of a parameter, read from a file or a function in each process. Immutable; can be pickled if the function can."""

    def __init__(self, key: str, given: Path | Callable[[], Any]) -> None:
        """Note where the value comes from. Reads and calls nothing.

        Args:
            key: the name of the parameter.
            given: the path of a file, or a function without arguments.
        """
        self._key = key
        self._given = given
        self.identity = f"file:{given}" if isinstance(given, Path) else oauth.new_identity()
        """A text that a source shares only with its pickled copies, and with sources of the same file."""

    def read(self) -> str:
        """Return the value: the text of the file without the line break at its end, or the result of the function. Blocks as they do.

        Raises:
            KafkaConfigError: the file cannot be read, or is empty; the function failed, or returned no text.
        """
        return self._of_file(self._given) if isinstance(self._given, Path) else self._of_function(self._given)

    def _of_file(self, path: Path) -> str:
        """Return the text of the file. Raises KafkaConfigError."""
        try:
            text = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
            hint = "Driver and workers read it: it must be on every node, under the same path."
            raise KafkaConfigError(self._key, f"names the file {path}, which cannot be read here: {reason}", hint) from None
        if not text:
            raise KafkaConfigError(self._key, f"names the file {path}, which is empty", "Write the value into it.")
        return text

    def _of_function(self, function: Callable[[], Any]) -> str:
        """Return the result of the function. Raises KafkaConfigError."""
        try:
            found = function()
        except Exception as e:
            reason = redact(f"{type(e).__name__}: {e}")
            raise KafkaConfigError(self._key, f"is a function, which raised {reason}", "It must return the value.") from None
        if not isinstance(found, str) or not found:
            raise KafkaConfigError(self._key, f"is a function that returned {type(found).__name__}", "It must return the value.")
        return found

    def __repr__(self) -> str:
        return f"SecretSource({self._given if isinstance(self._given, Path) else 'a function'})"


def is_source(key: str, value: Any) -> bool:
    """Return whether the user gave a file or a function where one is allowed. Pure."""
    return key in SECRET and (isinstance(value, (Path, SecretSource)) or callable(value))


def source_of(key: str, value: Any) -> SecretSource:
    """Return the source that the user's value names. Pure."""
    return value if isinstance(value, SecretSource) else SecretSource(key, value)


def read_secrets(settings: Mapping[str, Any]) -> Properties:
    """Return the settings with the values of their sources, which texts from now on do not show. Blocks as the sources do.

    Raises:
        KafkaConfigError: a source cannot be read.
    """
    values = {key: value.read() if isinstance(value, SecretSource) else value for key, value in settings.items()}
    add_secrets(values, NOT_SECRET)
    return Properties(values)


class ClientSecrets:
    """The secrets with which one client was created. Not thread-safe: one thread at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Read the secrets. Blocks as their sources do.

        Args:
            settings: the properties of the client.

        Raises:
            KafkaConfigError: a source cannot be read.
        """
        self._settings = settings
        self.awaits_answer = False
        """Whether a refused client was replaced, and no broker has answered since."""
        self.values = read_secrets(settings)
        """The settings with plain values, for librdkafka."""
        self._known = self._fingerprint(self.values)

    def on_response(self) -> None:
        self.awaits_answer = False

    def on_replaced(self) -> None:
        """Note that a client with these secrets has taken the place of a refused one."""
        self.awaits_answer = True

    def renew(self) -> bool:
        """Read the secrets again, after the brokers have refused the client. Blocks as the sources do.

        Returns:
            Whether a new client is worth a try: a secret or a file has changed, or a function gives tokens, and the client was not already
            replaced since the last answer. `values` are then the newer ones.
        """
        if self.awaits_answer:
            return False
        try:
            values = read_secrets(self._settings)
        except KafkaConfigError:  # the file is about to be replaced: the refusal itself is the better error
            return False
        known = self._fingerprint(values)
        if known == self._known and oauth.KEY not in self._settings:
            return False
        self.values, self._known = values, known
        return True

    def _fingerprint(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a value that changes with the secrets and with the files: digests and dates, no secret."""
        secrets = [hashlib.sha256(str(values[key]).encode()).hexdigest() for key in sorted(SECRET & values.keys())]
        return (*secrets, *(_dates(str(values[key])) for key in sorted(FILES & values.keys())))


def _dates(path: str) -> tuple[int, ...]:
    """Return what changes when a file is replaced: inode, size and date; () if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
