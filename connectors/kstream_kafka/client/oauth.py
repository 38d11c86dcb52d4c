"""TokenCallback: the user's `oauth_cb`, as clients on the driver and in the workers call it.

The user gives a function, which is pickled into the tasks, or an import path "package.module:function", which is resolved in each process.
It gets the value of `sasl.oauthbearer.config`. It returns (token, expiry in seconds since 1970) or (token, expiry, principal, extensions),
as for confluent_kafka.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from kstream_kafka.client.redaction import add_secret, redact
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError

KEY = "oauth_cb"
Given = Callable[[str], Any] | str


class TokenCallback:
    """An `oauth_cb` for librdkafka. `identity` is the same in every process to which the callback is pickled. `repr` shows no function."""

    def __init__(self, given: Given) -> None:
        if isinstance(given, str):
            module, colon, name = given.partition(":")
            if not (colon and module.strip() and name.strip()):
                raise KafkaConfigError(KEY, "is no function and no import path", 'Write "package.module:function".')
        elif not callable(given):
            raise KafkaConfigError(KEY, f"is of type {type(given).__name__}", 'Give a function, or "package.module:function".')
        self._given = given
        self.identity = given if isinstance(given, str) else uuid.uuid4().hex
        self._ready: Any = None

    def __call__(self, config: str) -> Any:
        """Return a token for librdkafka: the one of `fetch_first` at the first call, a new one later."""
        ready, self._ready = self._ready, None
        return ready if ready is not None else self._fetch(config)

    def fetch_first(self, config: str, address: str) -> None:
        """Fetch the first token before the client is created. Otherwise the client would wait 10 s for it and name no reason.

        Blocks as long as the user's function does.

        Raises:
            AuthenticationFailedError: the function raised an error, or returned no token.
        """
        function = self._function()
        try:
            self._ready = self._fetch(config, function)
        except Exception as e:
            reason = redact(f"oauth_cb gave no token: {type(e).__name__}: {e}")
            hint = "It has to return (token, expiry in seconds since 1970), or (token, expiry, principal, extensions)."
            raise AuthenticationFailedError(address, "SASL", "OAUTHBEARER", reason, hint) from None

    def _fetch(self, config: str, function: Callable[[str], Any] | None = None) -> Any:
        answer = (function or self._function())(config)
        if not isinstance(answer, tuple) or len(answer) < 2 or not isinstance(answer[0], str):
            raise TypeError(f"it returned {type(answer).__name__}")
        add_secret(answer[0])
        if float(answer[1]) <= time.time():
            raise ValueError(f"its token expired {time.time() - float(answer[1]):.0f} s ago")
        return answer

    def _function(self) -> Callable[[str], Any]:
        if not isinstance(self._given, str):
            return self._given
        module, _, name = self._given.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as e:
            raise KafkaConfigError(KEY, f"names {self._given!r}, which cannot be imported here: {e}", "Ship it with --py-files.") from e
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ready": None}  # a token stays in the process that fetched it

    def __repr__(self) -> str:
        return f"TokenCallback({self._given if isinstance(self._given, str) else 'a function'})"
