"""TokenCallback: the user's `oauth_cb`, as clients on the driver and in the workers call it.

The user gives a function, which is pickled into the tasks, or an import path "package.module:function", which is resolved in each process.
The function gets the value of `sasl.oauthbearer.config`. It returns (token, expiry in seconds since 1970) or (token, expiry, principal,
extensions), as for confluent_kafka.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from kstream.secret import add_secret, redact
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError

KEY = "oauth_cb"
Given = Callable[[str], Any] | str
"""The user's function, or its import path."""


def new_identity() -> str:
    """Return a text that no other function of a user has."""
    return uuid.uuid4().hex


class TokenCallback:
    """An `oauth_cb` for librdkafka. It can be pickled if the user's function can. `repr` does not show the function.

    Attributes:
        identity: a text that a callback shares only with its pickled copies, and with callbacks of the same import path.
    """

    def __init__(self, given: Given) -> None:
        """Create the callback. Imports and calls nothing.

        Args:
            given: the user's function, or its import path.

        Raises:
            KafkaConfigError: `given` is neither a function nor an import path.
        """
        if isinstance(given, str):
            module, colon, name = given.partition(":")
            if not (colon and module.strip() and name.strip()):
                raise KafkaConfigError(KEY, "is no function and no import path", 'Write "package.module:function".')
        elif not callable(given):
            raise KafkaConfigError(KEY, f"is of type {type(given).__name__}", 'Give a function, or "package.module:function".')
        self._given = given
        self.identity = given if isinstance(given, str) else new_identity()
        self._ready: Any = None

    def __call__(self, config: str) -> Any:
        """Return a token for librdkafka, which calls this from a thread that polls. Blocks as long as the user's function does.

        Args:
            config: the value of `sasl.oauthbearer.config`.

        Returns:
            The result of the user's function. The first call returns the token of `fetch_first`.

        Raises:
            KafkaConfigError: the import path cannot be imported in this process.
            TypeError: the function returned no token.
            ValueError: the token has expired.
            Exception: an error of the user's function.
        """
        ready, self._ready = self._ready, None
        return ready if ready is not None else self._fetch(config)

    def fetch_first(self, config: str, address: str) -> None:
        """Fetch the first token before the client is created. Otherwise the client would wait 10 s for the token and name no reason.

        Blocks as long as the user's function does. The first call of this object returns the token.

        Args:
            config: the value of `sasl.oauthbearer.config`.
            address: the value of `bootstrap.servers`, for the error.

        Raises:
            KafkaConfigError: the import path cannot be imported in this process.
            AuthenticationFailedError: the function raised an error, or returned no token or an expired one.
        """
        function = self._function()
        try:
            self._ready = self._fetch(config, function)
        except Exception as e:
            reason = redact(f"oauth_cb gave no token: {type(e).__name__}: {e}")
            hint = "It has to return (token, expiry in seconds since 1970), or (token, expiry, principal, extensions)."
            raise AuthenticationFailedError(address, "SASL", "OAUTHBEARER", reason, hint) from None

    def _fetch(self, config: str, function: Callable[[str], Any] | None = None) -> Any:
        """Call the user's function, check its token and redact it from now on. TypeError or ValueError for a token that cannot be used."""
        answer = (function or self._function())(config)
        if not isinstance(answer, tuple) or len(answer) < 2 or not isinstance(answer[0], str):
            raise TypeError(f"it returned {type(answer).__name__}")
        add_secret(answer[0])
        if float(answer[1]) <= time.time():
            raise ValueError(f"its token expired {time.time() - float(answer[1]):.0f} s ago")
        return answer

    def _function(self) -> Callable[[str], Any]:
        """Return the user's function. KafkaConfigError if its import path cannot be imported in this process."""
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
