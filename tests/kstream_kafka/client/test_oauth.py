"""oauth_cb: a function or an import path, the same in every process, and never a wait of 10 s for a token that will not come."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from kstream_kafka.client.oauth import TokenCallback
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError
from kstream_kafka.reader.consumer_cache import settings_key

from kstream.secret import redact
from kstream.spark.spark_context import dump_functions, load_functions


def token(config: str) -> tuple[str, float]:
    return f"token-for-{config}", time.time() + 60


def params(callback: Any) -> KafkaParams:
    given = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return KafkaParams.parse({**given, "oauth_cb": callback})


def test_an_import_path_is_the_function_it_names():
    assert TokenCallback(f"{__name__}:token")("me")[0] == "token-for-me"


@pytest.mark.parametrize("path", ["no.such.module:f", f"{__name__}:no_such_function"])
def test_an_import_path_that_leads_nowhere_is_a_parameter_error(path: str):
    with pytest.raises(KafkaConfigError, match=r"'oauth_cb' names .* which cannot be imported here"):
        TokenCallback(path).fetch_first("", "h:1")


def test_it_reaches_the_workers_whatever_function_it_is():
    secret = "closed over"
    executor = params(lambda config: (f"{secret} {config}", time.time() + 60)).executor()
    (again,) = load_functions(dump_functions([executor]))
    assert again["oauth_cb"]("x")[0] == "closed over x"
    assert pickle.loads(pickle.dumps(params(f"{__name__}:token").executor()))["oauth_cb"]("y")[0] == "token-for-y"


def test_two_callbacks_of_one_name_never_share_a_consumer_and_copies_of_one_do():
    def of(user: str) -> Any:
        return lambda config: (user, time.time() + 60)

    one, other = params(of("alice")).executor(), params(of("bob")).executor()
    (copy,) = load_functions(dump_functions([one]))
    assert settings_key(one) == settings_key(copy) and settings_key(one) != settings_key(other)


def test_the_first_token_is_got_once_and_stays_in_its_process():
    called: list[str] = []
    callback = TokenCallback(lambda config: called.append(config) or ("first-token", time.time() + 60))
    callback.fetch_first("c", "h:1")
    (copy,) = load_functions(dump_functions([callback]))
    assert vars(copy)["_ready"] is None
    assert callback("c")[0] == "first-token" and called == ["c"]
    callback("c")
    assert called == ["c", "c"]


def raises(_config: str) -> Any:
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("callback", "said"),
    [(raises, "ValueError: no luck"), (lambda c: "token", "it returned str"), (lambda c: ("t", time.time() - 90), "expired 90 s ago"),
     (lambda c: (None, 0), "it returned tuple"), (lambda c: ("t", "soon"), "ValueError")],
)  # fmt: skip
def test_a_callback_without_a_token_is_an_error_at_once(callback: Any, said: str):
    with pytest.raises(AuthenticationFailedError, match=said):
        TokenCallback(callback).fetch_first("", "h:1")


def test_tokens_are_hidden_in_whatever_is_said_later():
    TokenCallback(lambda c: ("eyJ-a-token", time.time() + 60)).fetch_first("", "h:1")
    assert redact("the broker refused eyJ-a-token.") == "the broker refused [hidden]."
