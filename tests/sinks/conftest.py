from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kept_connections import closed_at_the_end


@pytest.fixture(autouse=True)
def kept_connections() -> Iterator[None]:
    with closed_at_the_end():
        yield
