"""Test that a batch is split into examples."""

from __future__ import annotations

import torch

from attnviz.extraction.inputs.batch import Batch, split_examples


def test_each_example_keeps_its_own_notes() -> None:
    notes = [["first"], []]
    batch = Batch({"input_ids": torch.ones(2, 3)}, 2, notes=["both"], example_notes=notes)
    singles = split_examples(batch)
    assert [single.example_notes for single in singles] == [[["first"]], [[]]]
    assert all(single.notes == ["both"] for single in singles)
    without = split_examples(Batch({"input_ids": torch.ones(2, 3)}, 2))
    assert [single.example_notes for single in without] == [[], []]
