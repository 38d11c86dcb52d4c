"""Lines are Hadoop's, however a file is cut."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable

import pytest

from kstream.files.formats import lines


def together(parts: list[list[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(parts))


def pieces(data: bytes, cuts: list[int], block: int) -> list[list[str]]:
    """What the readers of the pieces between the cuts give."""
    bounds = itertools.pairwise([0, *cuts, len(data)])
    return [list(lines(reader(data, start), start, end, block)) for start, end in bounds]


def reader(data: bytes, start: int) -> Callable[[int], bytes]:
    file = io.BytesIO(data)
    file.seek(start)
    return file.read


def whole(data: bytes) -> list[str]:
    return [line.decode("utf-8", "replace") for line in data.splitlines()]


def test_lines_end_with_lf_cr_and_crlf_and_with_nothing_else() -> None:
    data = "a\nb\r\nc\rd\x0be\x85f\u2028g\n\n\r\nh".encode()
    assert list(lines(reader(data, 0))) == ["a", "b", "c", "d\x0be\x85f\u2028g", "", "", "h"]
    assert list(lines(reader(b"", 0))) == []
    assert list(lines(reader(b"\n", 0))) == [""]


def test_a_byte_order_mark_is_dropped_at_the_beginning_of_a_file_only() -> None:
    data = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"
    for block in (1, 2, 100):
        assert list(lines(reader(data, 0), 0, None, block)) == ["a", "\ufeffb"]


def test_bytes_that_are_no_utf8_are_replaced_and_lose_no_line() -> None:
    assert list(lines(reader(b"\xff\xfe\nb", 0))) == ["\ufffd\ufffd", "b"]


def test_every_cut_of_a_small_file_gives_every_line_once() -> None:
    data = b"one\r\ntwo\n\nthree\rfour\n\r\nfive"
    for count in (1, 2):
        for cuts in itertools.combinations(range(1, len(data)), count):
            for block in (1, 3, 64):
                assert together(pieces(data, list(cuts), block)) == whole(data), f"cuts {cuts}, block {block}"


@pytest.mark.parametrize("seed", range(60))
def test_random_files_in_random_pieces_give_every_line_once_and_in_order(seed: int) -> None:
    draw = random.Random(seed)
    data = b"".join(draw.choice([b"\n", b"\r", b"\r\n", b"x", b"yy", b"z" * 40]) for _ in range(draw.randrange(1, 120)))
    cuts = sorted(draw.sample(range(1, len(data) + 1), min(len(data), draw.randrange(0, 8))))
    assert together(pieces(data, cuts, draw.choice([1, 2, 7, 50]))) == whole(data)


def test_a_line_belongs_to_the_piece_it_begins_in() -> None:
    assert pieces(b"aa\nbb\ncc\n", [3, 6], 100) == [["aa", "bb"], ["cc"], []]
    assert pieces(b"aaaaaaaa\nbb\n", [2, 4], 100) == [["aaaaaaaa"], [], ["bb"]]
