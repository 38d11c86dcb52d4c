"""TokenCallback: the user's `oauth_cb`, as clients on the driver and in the workers call it.

Given as a function (pickled into the tasks as other functions are) or as the import path "package.module:function", which is looked up
where it is needed. It is called with the value of `sasl.oauthbearer.config` and returns (token, time of expiry in seconds since 1970),
and, if it wants to, a principal and a dict of extensions, as confluent_kafka has it.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from kstream_kafka.client.redaction import hidden, remember_value
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError

KEY = "oauth_cb"
Given = Callable[[str], Any] | str


class TokenCallback:
    """Callable as `oauth_cb`. `identity` tells two of them apart, in every process they are pickled to; shows nothing of the function."""

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
        """A token for librdkafka; the one that `fetch_first` got, if it is still to be used."""
        ready, self._ready = self._ready, None
        return ready if ready is not None else self._fetch(config)

    def fetch_first(self, config: str, address: str) -> None:
        """Gets the first token before the client is made, which would else wait 10 s for one and say no reason.

        AuthenticationFailedError when the function raises, or returns what is no token. Blocks as long as the function does.
        """
        function = self._function()
        try:
            self._ready = self._fetch(config, function)
        except Exception as e:
            said = hidden(f"{type(e).__name__}: {e}")
            raise AuthenticationFailedError(
                address, "SASL", "OAUTHBEARER", f"oauth_cb gave no token: {said}",
                "It has to return (token, expiry in seconds since 1970), or (token, expiry, principal, extensions).",
            ) from None  # fmt: skip

    def _fetch(self, config: str, function: Callable[[str], Any] | None = None) -> Any:
        answer = (function or self._function())(config)
        if not isinstance(answer, tuple) or len(answer) < 2 or not isinstance(answer[0], str):
            raise TypeError(f"it returned {type(answer).__name__}")
        remember_value(answer[0])
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
        return {**vars(self), "_ready": None}  # tokens stay in the process that got them

    def __repr__(self) -> str:
        return f"TokenCallback({self._given if isinstance(self._given, str) else 'a function'})"
