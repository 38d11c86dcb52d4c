"""Places that an option names: directories and URLs that each Python process of a query opens."""

from __future__ import annotations

from kstream.storage import StorePlace
from kstream.storage.open import HADOOP, is_known, scheme_of


def place(text: str) -> StorePlace:
    """Return a place. ValueError unless it is an absolute path or a URL that Python workers open."""
    scheme = scheme_of(text)
    if scheme in HADOOP or scheme == "memory" or not is_known(scheme) or not is_absolute(text):
        raise ValueError
    return StorePlace(text, exclusive=False)


def is_absolute(text: str) -> bool:
    """Return whether a path or URL names the same place in each process."""
    return scheme_of(text) != "" or text.startswith("/")


PLACE = (place, "an absolute path, or a URL of an object store or of fsspec, which Python workers can open; not of Hadoop")
"""The kind of values of such an option."""
