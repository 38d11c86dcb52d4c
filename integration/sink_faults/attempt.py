"""The process of one attempt. Standard input has the pickled Attempt. Standard output gets what it returns, or its error as a text."""

from __future__ import annotations

import pickle
import sys

from kstream.errors import KStreamError


def main() -> None:
    attempt = pickle.load(sys.stdin.buffer)
    try:
        found = attempt.run()
    except KStreamError as e:
        found = f"{type(e).__name__}: {e}"
    sys.stdout.buffer.write(pickle.dumps(found))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
