"""Parts of a corpus, for the jobs of a job array."""

from __future__ import annotations

from typing import Any

import pytest

import attnviz as av

TEXTS = ["the cat sat", "a b a b", "the dog ran home", "it was the cat", "mary gave john a drink"]


def test_parts_contain_every_text_once() -> None:
    model, tokenizer = av.demos.load("decoder")
    options: Any = {"tokenizer": tokenizer, "progress": False, "batch_size": 1}
    expected = av.head_statistics(model, TEXTS, **options)
    for count in (1, 2, 5):
        parts = [
            av.head_statistics(model, TEXTS, part=(number, count), **options)
            for number in range(count)
        ]
        assert sum(part.texts for part in parts) == len(TEXTS)
        # In reverse, because the sum does not depend on the order.
        total = parts[-1]
        for part in parts[:-1]:
            total += part
        assert total.text_numbers == expected.text_numbers
        assert total.to_pandas().equals(expected.to_pandas())
        assert total.stack().sampled(2, 1) == expected.stack().sampled(2, 1)


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ((-1, 2), ValueError, r"part\[0\]=-1 must be from 0 to 1, the index of a part"),
        ((2, 2), ValueError, r"part\[0\]=2 must be from 0 to 1"),
        ((1, 6), ValueError, r"part\[1\]=6 must be from 1 to 5, the number of parts"),
        ((1, 0), ValueError, r"part\[1\]=0 must be"),
        ((1,), TypeError, r"must be a pair \(part, number of parts\), such as"),
        (("1", 2), TypeError, r"part\[0\]='1' must be a whole number"),
        (3, TypeError, "part=3 must be a pair"),
    ],
)
def test_invalid_parts_are_refused(part: Any, error: type[Exception], message: str) -> None:
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(error, match=message):
        av.head_statistics(model, TEXTS, tokenizer=tokenizer, part=part, progress=False)


def test_records_have_no_parts() -> None:
    record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    with pytest.raises(TypeError, match=r"part=\(1, 2\) has no meaning without texts"):
        av.head_statistics([record], part=(1, 2))
