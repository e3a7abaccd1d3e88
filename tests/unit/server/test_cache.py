"""The cache of replies keeps the most recently used values that fit."""

from __future__ import annotations

from attnviz.server.cache import ByteCache


def filled(**values: str) -> ByteCache[str]:
    cache: ByteCache[str] = ByteCache(10, len)
    for key, value in values.items():
        cache[key] = value
    return cache


def test_what_fits_is_kept_and_counted() -> None:
    cache = filled(a="1234", b="123456")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("1234", "123456", None)
    assert cache.num_bytes == 10


def test_one_byte_too_many_forgets_what_was_not_asked_for_longest() -> None:
    cache = filled(a="1234", b="123456")
    assert cache.get("a") == "1234"
    cache["c"] = "1"
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("1234", None, "1")
    assert cache.num_bytes == 5


def test_a_value_that_takes_the_place_of_another_counts_once() -> None:
    cache = filled(a="12345678")
    cache["a"] = "12"
    cache["b"] = "12345678"
    assert (cache.get("a"), cache.get("b"), cache.num_bytes) == ("12", "12345678", 10)


def test_the_newest_stays_even_where_it_alone_is_too_large() -> None:
    cache = filled(a="1234", b="x" * 30)
    assert (cache.get("a"), cache.get("b")) == (None, "x" * 30)
    cache["c"] = "1"
    assert (cache.get("b"), cache.get("c")) == (None, "1")
