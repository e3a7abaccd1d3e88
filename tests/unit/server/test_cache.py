"""Tests of `ByteCache`, which drops the least recently used values above its limit."""

from __future__ import annotations

from attnviz.server.cache import ByteCache


def filled(**values: str) -> ByteCache[str]:
    cache: ByteCache[str] = ByteCache(10, len)
    for key, value in values.items():
        cache[key] = value
    return cache


def test_the_least_recently_used_value_is_dropped_first() -> None:
    cache = filled(a="1234", b="123456")
    assert cache.num_bytes == 10
    assert cache.get("a") == "1234"
    cache["c"] = "1"
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("1234", None, "1")
    assert cache.num_bytes == 5


def test_a_replaced_value_counts_once() -> None:
    cache = filled(a="12345678")
    cache["a"] = "12"
    assert cache.num_bytes == 2


def test_the_newest_value_stays_even_if_it_is_too_large() -> None:
    cache = filled(a="1234", b="x" * 30)
    assert (cache.get("a"), cache.get("b")) == (None, "x" * 30)
    cache["c"] = "1"
    assert (cache.get("b"), cache.get("c")) == (None, "1")
