"""The letters of a batch that are stored, as the driver tells them to the tasks of its next output."""

from __future__ import annotations

from kstream.worker.record_errors import StoredLetters, add_letters, letters_of_text, letters_text

PARSE = ("orders", 3, "map at job.py:7")


def test_the_letters_come_back_from_their_text() -> None:
    letters: StoredLetters = {PARSE: {5, 1_000_000_000_007, 6}, ("", None, "valueDecoder"): {0}}
    text = letters_text({7: letters, 6: {PARSE: {9}}})
    assert letters_of_text(text, 7) == letters and letters_of_text(text, 6) == {PARSE: {9}} and letters_of_text(text, 5) == {}
    assert letters_of_text(letters_text({7: {PARSE: set()}}), 7) == {}


def test_the_text_of_many_letters_is_short_and_is_ascii() -> None:
    letters: StoredLetters = {PARSE: {10**12 + 7 * n + n % 3 for n in range(100_000)}}
    text = letters_text({7: letters})
    assert text.isascii() and len(text) < 200_000


def test_letters_of_one_origin_are_added_and_the_added_ones_do_not_change() -> None:
    into: StoredLetters = {}
    more: StoredLetters = {PARSE: {5}}
    add_letters(into, more)
    add_letters(into, {PARSE: {6}, ("orders", 4, "map"): {1}})
    assert into == {PARSE: {5, 6}, ("orders", 4, "map"): {1}} and more == {PARSE: {5}}
