"""One model type from its configuration to a line of the table."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from transformers import PreTrainedModel

import attnviz
from attnviz import AttentionRecord
from attnviz.record.attention import QueryKeyAttention
from model_types.build import tiny_model
from model_types.changing import changes_of
from model_types.compare import ROUNDED, TOLERANCE, Comparison, Match, compare
from model_types.control import unnoticed
from model_types.inputs import find_inputs
from model_types.overrides import OVERRIDES
from model_types.reference import (
    Weights,
    by_pattern,
    double_softmax,
    double_weights,
    draw_the_same,
    eager_copy,
    module_calls,
    own_weights,
    run,
)
from model_types.rows import Row
from model_types.sharpen import peak, sharpen
from model_types.state import Calls, State, pairs_of_tensors, same

__all__ = ["DIFFERENT", "ROUNDING", "check"]

DIFFERENT = "eager attention computes something else than the default"
ROUNDING = "float32 rounds such sharp logits too much"


def check(model_type: str) -> Row:
    """Build, sharpen, extract and compare one model type."""
    start = time.perf_counter()
    row = Row(model_type)
    try:
        _check(row)
    except _EndedError as end:
        row.result, row.reason = end.result, end.reason
    row.seconds = round(time.perf_counter() - start, 2)
    return row


class _EndedError(Exception):
    """The end of a check before it came to "ok"."""

    def __init__(self, result: str, reason: str | Exception) -> None:
        if isinstance(reason, Exception):
            text = " ".join(str(reason).split())
            reason = f"{type(reason).__name__}: {text[:300]}"
        super().__init__(reason)
        self.result = result
        self.reason = reason


def _check(row: Row) -> None:
    model, inputs = _prepared(row)
    own, modules = _sharpened(row, model, inputs)
    before, plain = State(model), run(model, inputs)
    calls = Calls(model)
    try:
        record = _extracted(row, model, inputs)
    finally:
        calls.stop()
    changes = before.changes(model)
    if not same(plain, run(model, inputs)):
        changes.append("a plain forward afterwards gives something else than before")
    changes += calls.changes(model)
    if changes:
        raise _EndedError("wrong", "; ".join(changes))
    found = compare(record, own, modules)
    arithmetic: AbstractContextManager[object] = nullcontext()
    if not found.right:
        found = _under_eager(row, model, inputs, found, own=own, modules=modules)
    if not found.right and not found.unmatched and found.error <= ROUNDED:
        found, arithmetic = _in_double(row, model, inputs, found), double_weights()
    row.error = found.error if found.matches else None
    _change(row, model, inputs)
    with arithmetic:
        row.unnoticed = unnoticed(found.matches)
    row.unverified = found.unverified
    if not found.right:
        warned = any(note.startswith("UserWarning") for note in row.notes)
        only_missing = warned and found.error <= TOLERANCE and found.matches
        raise _EndedError("partly" if only_missing else "wrong", _differences(found))
    row.result = "ok"


def _prepared(row: Row) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Make the model and find inputs that it runs on."""
    override = OVERRIDES.get(row.model_type, {})
    if "skip" in override:
        raise _EndedError("not built", override["skip"])
    try:
        model = tiny_model(row.model_type, override.get("class"), override.get("config", {}))
    except Exception as error:
        raise _EndedError("not built", error) from error
    row.kind = type(model).__name__
    try:
        inputs = find_inputs(model, lambda made: run(model, made), override.get("inputs"))
    except Exception as error:
        raise _EndedError("no inputs", error) from error
    row.inputs = list(inputs)
    output = run(model, inputs)
    if any(bool(one.isnan().any()) for one, _ in pairs_of_tensors(output, output)):
        raise _EndedError("no inputs", "its output is not a number")
    return model, inputs


def _sharpened(
    row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]
) -> tuple[Weights, Weights]:
    """Sharpen the model and take its own weights, from its output and from its modules."""
    override = OVERRIDES.get(row.model_type, {})

    def current() -> tuple[Weights, dict[str, list[torch.Tensor]]]:
        return _own(row, eager_copy(model), inputs)

    def measured() -> dict[str, list[torch.Tensor]]:
        own, calls = current()
        layers = [layer for layers in own.values() for layer in layers if layer is not None]
        return {**calls, "": layers or [layer for layers in calls.values() for layer in layers]}

    try:
        if override.get("sharpen", True):
            sharpen(model, measured)
        row.peak = peak(measured()[""])
        own, calls = current()
    except Exception as error:
        raise _EndedError("no own weights", error) from error
    modules = by_pattern(calls)
    if not own and not modules:
        raise _EndedError("no own weights", "neither its output nor its modules give any")
    row.source = "output" if own else "modules"
    return own, modules


def _own(
    row: Row, eager: PreTrainedModel, inputs: Mapping[str, Any]
) -> tuple[Weights, dict[str, list[torch.Tensor]]]:
    """The weights in the output of an eager model, and those that its modules compute."""
    left_out = OVERRIDES.get(row.model_type, {}).get("left_out", ())
    calls = module_calls(eager, inputs)
    try:
        own = own_weights(eager, inputs)
    except (IndexError, TypeError, ValueError):
        if not calls:
            raise
        own = {}
    return {name: own[name] for name in own if name not in left_out}, calls


def _extracted(row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]) -> AttentionRecord:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        draw_the_same(model)
        try:
            record = attnviz.extract(model, copy.deepcopy(dict(inputs)), progress=False)
        except Exception as error:
            raise _EndedError("refused", error) from error
    if isinstance(record, list):
        raise _EndedError("wrong", f"a list of {len(record)} records for one example")
    row.notes = [*record.notes, *(f"{w.category.__name__}: {w.message}"[:200] for w in said)]
    row.stacks = [
        f"{name} {stack.num_layers} x {max(stack.heads_per_layer)}"
        for name, stack in record.stacks.items()
    ]
    layers = [stack.attention(n) for stack in record.stacks.values() for n in stack.layers]
    known = {isinstance(layer, QueryKeyAttention) for layer in layers}
    row.way = " / ".join(
        way for way, kept in (("queries and keys", True), ("weights", False)) if kept in known
    )
    made: AttentionRecord = record
    return made


def _change(row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
    """Change the attention of each stack."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            row.changes = changes_of(model, inputs)
        except (NotImplementedError, TypeError, ValueError) as error:
            row.unchanged = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _under_eager(
    row: Row,
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    found: Comparison,
    *,
    own: Weights,
    modules: Weights,
) -> Comparison:
    """The comparison with a record of the eager model, where that is the fair one.

    The record is of what the model runs. Where its default attention is not what eager computes,
    its own weights are of something else.
    """
    eager = eager_copy(model)
    pairs = pairs_of_tensors(run(model, inputs), run(eager, inputs))
    differ = any(
        float((one - other).abs().max()) > 1e-2 * max(1.0, float(one.abs().max()))
        for one, other in pairs
    )
    notes = row.notes
    if not differ:
        return found
    compared = compare(_extracted(row, eager, inputs), own, modules)
    if not compared.right:
        return found
    row.notes = [*notes, DIFFERENT]
    return compared


def _in_double(
    row: Row, model: PreTrainedModel, inputs: Mapping[str, Any], found: Comparison
) -> Comparison:
    """The comparison of the same forwards in float64, if that is the one that can be right.

    Where keys are much alike, logits are large before rows are sharp (11,000 were seen):
    float32 has three digits of their differences. Neither the record, nor the model's own
    weights, nor the forwards of default and eager attention say the fourth.
    """
    exact = {
        name: value.double() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    eager = copy.deepcopy(eager_copy(model)).double()
    with double_softmax():
        own, modules = _own(row, eager, exact)
    notes = row.notes
    record = _extracted(row, copy.deepcopy(model).double(), exact)
    with double_weights():
        compared = compare(record, own, by_pattern(modules))
    if not compared.right:
        return found
    row.notes = [*notes, f"{ROUNDING} ({found.error:.0e})"]
    return compared


def _differences(found: Comparison) -> str:
    wrong = [match for match in found.matches if not match.error <= TOLERANCE]
    said = [*found.unmatched, *map(_errors, wrong)]
    return "; ".join(said) or "no stack could be held against anything"


def _errors(match: Match) -> str:
    errors = [f"{pair.stack} {pair.layer} {pair.error:.1e}" for pair in match.pairs]
    return f"{match.field} -> {match.stack}: {', '.join(errors[:6])}"
