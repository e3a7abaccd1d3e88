"""The question and the table of TAPAS are the two texts of a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import transformers

from attnviz import extract, load
from models.tiny import SIZE, assert_own, built, reference

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] [EMPTY] who won the cup team year red blue ? 20 ##24 19 ##99"
)
TABLE = pd.DataFrame({"team": ["red", "blue"], "year": ["2024", "1999"]})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS.split()))
    return transformers.TapasTokenizer(str(tmp_path / "vocab.txt"))


def test_a_question_and_a_table_are_two_texts(tokenizer: Any, tmp_path: Path) -> None:
    model = built("TapasModel", {**SIZE, "vocab_size": 40}, factor=40)
    questions = ["who won the cup?", "who won?"]
    encoded = tokenizer(
        table=TABLE, queries=questions, padding="max_length", max_length=24, return_tensors="pt"
    )
    own = reference(model, dict(encoded))
    records = extract(model, encoded, tokenizer=tokenizer, progress=False)
    for index, (record, question) in enumerate(zip(records, questions, strict=True)):
        tokens = record.tokens
        texts = {
            text: [token for token, one in zip(tokens, tokens.sequence, strict=True) if one == text]
            for text in (0, 1)
        }
        assert "".join(texts[0]) == question.replace(" ", "")
        assert "".join(texts[1]).replace("##", "") == "teamyearred2024blue1999"
        length = int(encoded["attention_mask"][index].sum())
        unpadded = {
            stack: [weights[:, :, :length, :length] for weights in layers]
            for stack, layers in own.items()
        }
        assert_own(record, unpadded, example=index)
        assert load(record.save(tmp_path / "x")).tokens == tokens
    alone = extract(model, tokenizer(table=TABLE, queries=questions[0]), tokenizer=tokenizer)
    assert alone.tokens == records[0].tokens
