"""Predictions of demo models with changed attention, on data that training did not contain."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch

import attnviz as av
from attnviz.analysis import repeated_induction
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.interventions.changes import Change
from attnviz.interventions.copies import Copies, ModuleRun
from attnviz.interventions.intervene import by_module, module_runs_of, plan_of
from attnviz.interventions.runs import ExampleRunner
from train_demos.dates import WrittenDate, draw_date
from train_demos.sentences import Sentence, antecedent_sentence, repeated_halves
from train_demos.shapes import draw_shapes, patches_of

SEED = 4712
LENGTH = 40


def share_right(model: Any, ids: torch.Tensor, head: tuple[int, int] | None) -> float:
    """Return the share of right predictions in the second half of `ids`, which repeats the first.

    The output of `head`, a layer and a head, is set to 0, unless `head` is None.
    """
    copies = Copies(
        model, ExampleRunner.one(model, {"input_ids": ids}, None, None, {}).batch, 2 * LENGTH
    )

    def ablate(call: AttentionCall, key: ModuleRun) -> None:
        if head is not None and key[0] == f"transformer.h.{head[0]}.attn":
            call.output[:, :, head[1]] = 0

    # The first word of the second half cannot be predicted.
    predicted = copies.run(1, ablate).logits[0, LENGTH:-1].argmax(dim=-1)
    return float((predicted == ids[0, LENGTH + 1 :]).float().mean())


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
    induction = max(scores, key=lambda pair: scores[pair])

    def right(head: tuple[int, int] | None) -> float:
        return float(np.mean([share_right(model, ids, head) for ids in texts]))

    assert right(None) > 0.99
    without = {head: right(head) for head in scores}
    assert without[induction] < 0.05
    needed = {head for head, share in without.items() if share < 0.95}
    # Besides the induction head, one head of layer 0 is needed. It attends to the previous token.
    assert len(needed) == 2
    [other] = needed - {induction}
    assert other[0] == 0
    before = record.stack().weights(layer=0, head=other[1])
    assert float(np.diagonal(before, offset=-1).mean()) > 0.5


def test_the_edge_to_the_antecedent_decides_the_noun(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    generator = np.random.default_rng(SEED)
    flipped = unchanged = neither = 0
    for _ in range(10):
        sentence: Sentence = antecedent_sentence(generator, held_out=True)
        right, wrong = sentence.words[sentence.answer], sentence.words[sentence.distractor]
        record = av.extract(model, sentence.prompt, tokenizer=tokenizer)
        rows = np.stack([record.stack().weights(layer=1, head=h)[-1] for h in range(4)])
        head = int(rows[:, sentence.source].argmax())
        options = {"answer": (right, wrong), "tokenizer": tokenizer}

        def prediction_without(
            key: int, *, before: bool = True, head: int = head, **more: Any
        ) -> str:
            edge = av.Knockout(-1, key, layers=1, heads=head, renormalize=before)
            effect = av.intervene(model, more.pop("text"), edge, **more).effect
            return str(effect.candidates_after[0].text)

        arguments = {"text": sentence.prompt, **options}
        flipped += prediction_without(sentence.source, **arguments) == wrong
        unchanged += prediction_without(sentence.distractor, **arguments) == right
        neither += prediction_without(sentence.source, before=False, **arguments) not in (
            right,
            wrong,
        )
    assert flipped >= 9
    assert unchanged >= 9
    assert neither >= 7


# Options for answers, which need no queries and keys.
OUTLINE = CaptureOptions(outline=True)


class Asked:
    """One example and a model. Each answer after a change costs one forward."""

    def __init__(
        self, model: Any, inputs: Any, target: str | None = None, **options: Unpack[RecordOptions]
    ) -> None:
        self._runs = ExampleRunner.one(model, inputs, target, None, options)
        forward = self._runs.forward(CaptureOptions(), None)
        self.record = self._runs.record(forward, CaptureOptions())
        self._places = module_runs_of(forward)

    def answer(self, *changes: Change) -> Any:
        """Return the most likely token at every position, or the most likely class."""
        plan = plan_of(changes, self.record, self._places)
        outputs = self._runs.forward(OUTLINE, by_module(plan)).outputs
        return outputs.logits[0].argmax(dim=-1).numpy()


# Positions of the digits of year, month and day in "2019-11-17".
DIGITS = {"year": [0, 1, 2, 3], "month": [5, 6], "day": [8, 9]}


def test_a_part_of_a_date_needs_its_letters() -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    generator = np.random.default_rng(SEED)
    written: list[WrittenDate] = [draw_date(generator, held_out=True) for _ in range(20)]
    right: dict[str, list[Any]] = {}
    for date in written:
        example = Asked(model, date.text, date.iso, tokenizer=tokenizer)
        ids = np.array(tokenizer(date.iso)["input_ids"][: len(date.iso)])
        changes: dict[str, list[Change]] = {
            "nothing": [],
            "month": [av.Knockout(keys=list(date.month), stack="cross")],
            "day": [av.Knockout(keys=list(date.day), stack="cross")],
        }
        for name, change in changes.items():
            answer = example.answer(*change)[: len(ids)]
            right.setdefault(name, []).append(answer == ids)
    shares = {name: np.mean(results, axis=0) for name, results in right.items()}

    assert (shares["nothing"] == 1).all()
    for cut, other in (("month", "day"), ("day", "month")):
        # The first digit of a month (0, 1) or day (0 to 3) is easier to guess than the second.
        first, second = shares[cut][DIGITS[cut]]
        assert second < 0.5
        assert second < first < 0.9
        others = shares[cut][[*DIGITS["year"], *DIGITS[other]]]
        assert (others > 0.95).all()


def test_a_shape_is_predicted_from_its_own_patches() -> None:
    model, processor = av.demos.load("vision")
    generator = np.random.default_rng(SEED)
    images, kinds, masks = draw_shapes(generator, 20)
    right: dict[str, list[bool]] = {}
    for image, kind, patches in zip(images, kinds, patches_of(masks), strict=True):
        example = Asked(model, image, processor=processor)
        # The class is predicted from token 0, CLS. Patches start at token 1.
        shape, ground = (1 + np.flatnonzero(patches == on) for on in (True, False))
        subset = generator.choice(ground, min(len(shape), len(ground)), replace=False)
        changes: dict[str, list[Change]] = {
            "nothing": [],
            "shape": [av.Knockout(0, shape.tolist())],
            "shape, last layer": [av.Knockout(0, shape.tolist(), layers=2)],
            "as many others": [av.Knockout(0, subset.tolist())],
            "all others": [av.Knockout(0, ground.tolist())],
        }
        for name, change in changes.items():
            right.setdefault(name, []).append(bool(example.answer(*change) == kind))
    shares = {name: float(np.mean(results)) for name, results in right.items()}

    assert shares["nothing"] > 0.95
    # There are four shapes, so chance is 0.25.
    assert shares["shape"] < 0.45
    assert shares["as many others"] > 0.95
    assert shares["all others"] > 0.95
    assert shares["shape, last layer"] > 0.8
