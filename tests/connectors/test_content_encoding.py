"""Unfolding an answer's body takes memory in proportion to the limit, whatever comes."""

import gzip
import tracemalloc

import pytest

from app.connectors.content_encoding import TooLarge, decode_content

MEBIBYTE = 1024 * 1024


def test_bomb_takes_no_more_memory_than_the_limit() -> None:
    """A body that would unfold to 200 MiB is given up at the limit of 1 MiB."""
    bomb = gzip.compress(b"0" * (200 * MEBIBYTE), compresslevel=1)

    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decode_content(bomb, "gzip", bytes_max=MEBIBYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * MEBIBYTE
