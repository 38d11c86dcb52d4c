"""Texts of errors that are shown: without passwords and keys, and otherwise as they are."""

from __future__ import annotations

import time

import pytest

from kstream.secret import without_secrets

TRACEBACK = """Traceback (most recent call last):
  File "/srv/jobs/orders.py", line 41, in to_sink
    return connect(url, table="tokens")
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: http://db:8080/orders refused a@example.org, try spark://token-svc:7077

The above exception was the direct cause: {'id': 7}
"""


def test_a_text_without_a_secret_stays_as_it_is() -> None:
    assert without_secrets(TRACEBACK) == TRACEBACK
    assert without_secrets("") == "" and without_secrets("a\r\n b\n\n") == "a\r\n b\n\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("could not open s3://me:hunter2@bucket/x", "could not open s3://me:(secret)@bucket/x"),
        ("jdbc:postgresql://app:hun/ter2@db/orders refused", "jdbc:postgresql://app:(secret)@db/orders refused"),
        ("amqp://me:h@unter2@q and amqp://me:hunter2@r", "amqp://me:(secret)@q and amqp://me:(secret)@r"),
        ("clone https://hunter2@example.org/x", "clone https://(secret)@example.org/x"),
        ("redis://:hunter2@cache:6379/0", "redis://:(secret)@cache:6379/0"),
    ],
)
def test_the_password_of_a_url_is_hidden_and_the_rest_of_its_line_is_not(text: str, shown: str) -> None:
    assert without_secrets(f"first\n  {text}\nlast") == f"first\n  {shown}\nlast"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("AuthError: password=hunter2", "AuthError: its text may hold a secret and is left out"),
        ('    connect(password="hunter2")', "    a line of this text may hold a secret and is left out"),
        ('{"token": "hunter2"}', '{"token": its text may hold a secret and is left out'),
        ("E: s3://me:hunter2@b password=hunter2", "E: its text may hold a secret and is left out"),
    ],
)
def test_of_a_line_with_another_secret_only_the_beginning_stays_and_other_lines_are_whole(line: str, shown: str) -> None:
    assert without_secrets(f"first\n{line}\nlast") == f"first\n{shown}\nlast"


def test_nothing_of_a_private_key_stays() -> None:
    key = "x: -----BEGIN PRIVATE KEY-----\naGVsbG8=\nd29ybGQ=\n-----END PRIVATE KEY-----"
    assert without_secrets(f"{key}\nlast") == "x: its text may hold a secret and is left out\nlast"
    assert "aGVsbG8=" not in without_secrets("-----BEGIN KEY-----\naGVsbG8=")


@pytest.mark.parametrize("piece", ["x", "://a:", "token", "https://", "a@", "://a:b@"])
def test_a_line_of_a_hostile_record_is_cut_and_takes_no_time(piece: str) -> None:
    begun = time.perf_counter()
    shown = without_secrets(piece * 1_000_000)
    assert len(shown) <= 2000 and time.perf_counter() - begun < 5


def test_a_password_is_hidden_also_where_its_line_is_cut() -> None:
    assert "hunter2" not in without_secrets("x " * 990 + "s3://me:" + "hunter2" * 10 + "@bucket")
