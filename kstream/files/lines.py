"""Lines of bytes, as Hadoop's TextInputFormat has them: ended by LF, CR or CRLF; not by form feeds and the like. Pure.

A file may be read in several pieces. A line belongs to the piece [start, end) if it begins in (start, end], or at 0: so the reader of a
piece skips the line it falls into, and reads on past its end until the line that began before it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_ENDS = b"\r\n"


def lines(read: Callable[[int], bytes], start: int = 0, end: int | None = None, block: int = BLOCK) -> Iterator[str]:
    """The lines of a piece. `read(n)` gives the next bytes from `start` on, at most n, none at the end of the file.

    `end` None: to the end of the file. Bytes that are no UTF-8 become U+FFFD; a byte order mark at the beginning of a file is dropped.
    """
    rest, begin, skipping = b"", start, start > 0
    over = False
    while not over:
        if end is not None and begin > end:
            return
        data = read(max(block, len(rest)))  # a very long line is not copied again for each block
        over = not data
        data = rest + data
        if begin == 0 and not skipping and data.startswith(_BOM):
            data, begin = data[len(_BOM) :], len(_BOM)
        pieces = data.splitlines(keepends=True)
        # A CR that ends a block may be half of a CRLF.
        rest = pieces.pop() if not over and pieces and not pieces[-1].endswith(b"\n") else b""
        if skipping and pieces:
            begin += len(pieces.pop(0))
            skipping = False
        if end is None or begin + sum(map(len, pieces)) <= end:
            begin += sum(map(len, pieces))
            yield from [piece.rstrip(_ENDS).decode("utf-8", "replace") for piece in pieces]
            continue
        for piece in pieces:
            if begin > end:
                return
            begin += len(piece)
            yield piece.rstrip(_ENDS).decode("utf-8", "replace")
