"""What the demo models need: their stories hold when attention is changed, on held-out data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.analysis import repeated_induction
from attnviz.demos.datasets.sentences import Sentence, antecedent_sentence, repeated_halves
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.interventions.copies import Copies, Place
from attnviz.interventions.runs import Runs

pytestmark = pytest.mark.models

SEED = 4712
LENGTH = 40


@pytest.fixture(scope="module")
def decoder() -> tuple[Any, Any]:
    model, tokenizer = av.demos.load("decoder")
    return model, tokenizer


def share_right(model: Any, ids: torch.Tensor, head: tuple[int, int] | None) -> float:
    """How many words of a second half are the likeliest, without one head."""
    copies = Copies(model, Runs(model, {"input_ids": ids}, None, None, {}).batch, 2 * LENGTH)

    def ablate(call: AttentionCall, place: Place) -> None:
        if head is not None and place[0] == f"transformer.h.{head[0]}.attn":
            call.output[:, :, head[1]] = 0

    # Behind the first word that comes again the next can be known.
    found = copies.run(1, ablate).logits[0, LENGTH:-1].argmax(dim=-1)
    return float((found == ids[0, LENGTH + 1 :]).float().mean())


def test_only_the_induction_circuit_is_needed_for_repeats(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    generator = np.random.default_rng(SEED)
    words = np.array(sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids)))
    rows = repeated_halves(generator, words, rows=4, length=LENGTH)
    texts = [torch.from_numpy(row)[None] for row in rows]
    record = av.extract(model, {"input_ids": texts[0]})
    scores = {
        (layer, head): repeated_induction(record.stack().weights(layer=layer, head=head), LENGTH)
        for layer in (0, 1, 2)
        for head in range(4)
    }
    induction = max(scores, key=lambda place: scores[place])

    def right(head: tuple[int, int] | None) -> float:
        return float(np.mean([share_right(model, ids, head) for ids in texts]))

    assert right(None) > 0.99
    without = {head: right(head) for head in scores}
    assert without[induction] < 0.05
    needed = {head for head, share in without.items() if share < 0.95}
    # The head that looks at the word before, and so tells the other where to look.
    assert len(needed) == 2
    [other] = needed - {induction}
    assert other[0] == 0
    before = record.stack().weights(layer=0, head=other[1])
    assert float(np.diagonal(before, offset=-1).mean()) > 0.5


def test_the_edge_to_the_antecedent_decides_the_noun(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    generator = np.random.default_rng(SEED)
    flipped = kept = neither = 0
    for _ in range(10):
        sentence: Sentence = antecedent_sentence(generator, held_out=True)
        right, wrong = sentence.words[sentence.answer], sentence.words[sentence.distractor]
        record = av.extract(model, sentence.prompt, tokenizer=tokenizer)
        rows = np.stack([record.stack().weights(layer=1, head=h)[-1] for h in range(4)])
        head = int(rows[:, sentence.source].argmax())
        options = {"answer": (right, wrong), "tokenizer": tokenizer}

        def said(key: int, *, before: bool = True, head: int = head, **more: Any) -> str:
            edge = av.Knockout(-1, key, layers=1, heads=head, renormalize=before)
            effect = av.intervene(model, more.pop("text"), edge, **more).effect
            return effect.likeliest_after[0].text

        given = {"text": sentence.prompt, **options}
        flipped += said(sentence.source, **given) == wrong
        kept += said(sentence.distractor, **given) == right
        neither += said(sentence.source, before=False, **given) not in (right, wrong)
    assert flipped >= 9
    assert kept >= 9
    assert neither >= 7
