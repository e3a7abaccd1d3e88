"""Check of one tiny model. The result is a `Row`, from which docs/coverage.md is written.

A `Case` is a tiny model to check. Its override is its entry in `model_types.overrides`, with
settings of the configuration and inputs.

The model's own weights are the attention weights in its output, or those that its attention modules
return. They are computed with eager attention, the only implementation of transformers that returns
weights. A record is what `attnviz.extract` returns. It has stacks. A stack is the attention of one
kind, such as "self" or "cross", in all layers. Weights of a record are right if they equal the
model's own weights.
"""

from __future__ import annotations

import copy
import inspect
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from transformers import PreTrainedModel

import attnviz
from attnviz import AttentionRecord
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.linear import StateAttention
from model_types.build import tiny_model
from model_types.cases import Case, override_of
from model_types.compare import ROUNDED, TOLERANCE, Comparison, Match, compare
from model_types.control import unnoticed
from model_types.inputs import find_inputs
from model_types.places import places_of
from model_types.reasons import NO_ATTENTION, READ
from model_types.reference import (
    Weights,
    by_pattern,
    double_softmax,
    double_weights,
    draw_the_same,
    eager_copy,
    linear_matrices,
    module_calls,
    own_weights,
    run,
)
from model_types.rows import Row
from model_types.sharpen import peak, sharpen
from model_types.stack_changes import changes_of
from model_types.state import Calls, pairs_of_tensors, same
from models.interrupts import state_of

DIFFERENT = "eager attention computes something else than the default"
ROUNDING = "float32 rounds such sharp logits too much"


def check(case: Case) -> Row:
    """Make a tiny model, extract a record, and compare it with the model's own weights."""
    start = time.perf_counter()
    row = Row(case.model_type, case.kind, list(case.auto), case.flag)
    try:
        _check(row, case)
    except _EndedError as end:
        row.result, row.reason = end.result, end.reason
    row.seconds = round(time.perf_counter() - start, 2)
    return row


class _EndedError(Exception):
    """Error that ends a check with a result other than "ok"."""

    def __init__(self, result: str, reason: str | Exception) -> None:
        if isinstance(reason, Exception):
            text = " ".join(str(reason).split())
            reason = f"{type(reason).__name__}: {text[:300]}"
        super().__init__(reason)
        self.result = result
        self.reason = reason


def _check(row: Row, case: Case) -> None:
    override = override_of(case)
    model, inputs = _prepared(row, case, override)
    if not case.flag:
        row.place_names, row.place_reason = places_of(case.model_type, model, inputs, override)
    own = _sharpened(row, model, inputs, override)
    comparison, arithmetic = _compared(row, model, inputs, own, override)
    row.error = comparison.error if comparison.matches else None
    row.unverified = list(comparison.unverified)
    if case.is_base:
        _change(row, model, inputs)
        with arithmetic:
            row.unnoticed = unnoticed(comparison.matches)
    _demand(row, comparison, inputs)
    if "use_cache" in inspect.signature(model.forward).parameters:
        _check_cached(row, model, inputs | {"use_cache": True}, override)
    row.result = "ok"


def _check_cached(
    row: Row, model: PreTrainedModel, inputs: Mapping[str, Any], override: Mapping[str, Any]
) -> None:
    """Repeat the comparison with `inputs`, which contain `use_cache=True`.

    If the model fails with a cache even without attnviz, only add a note to `row`. Raise
    `_EndedError` if the comparison fails.
    """
    try:
        run(model, inputs)
        run(eager_copy(model), inputs)
    # A model that cannot use a cache may raise any exception.
    except Exception as error:  # noqa: BLE001
        row.notes.append(
            f"the model fails with use_cache=True: {type(error).__name__}: {error}"[:300]
        )
        return
    row.cached = True
    before = (row.stacks, row.way, row.notes)
    try:
        own, calls = _own(eager_copy(model), inputs, override)
        own |= _linear(model, inputs)
        comparison, _ = _compared(row, model, inputs, (own, by_pattern(calls)), override)
        _demand(row, comparison, inputs)
    except _EndedError as end:
        raise _EndedError(end.result, f"with use_cache=True: {end.reason}") from end
    row.stacks, row.way, row.notes = before
    row.error = max(row.error or 0.0, comparison.error)


# The model's own weights: those in its output, and those that its attention modules return.
_Own = tuple[Weights, Weights]


def _compared(
    row: Row,
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    own: _Own,
    override: Mapping[str, Any],
) -> tuple[Comparison, AbstractContextManager[object]]:
    """Extract a record, and compare it with the model's own weights.

    If float32 is not exact enough, compare in float64. Return the comparison, and a context manager
    in which later comparisons with the same own weights must run. It is `double_weights` for
    float64, and has no effect for float32. Raise `_EndedError` if the extraction fails or changes
    the model.
    """
    plain = run(model, inputs)
    before = state_of([model])
    calls = Calls(model)
    try:
        record = _extracted(row, model, inputs)
    finally:
        calls.stop()
    now = state_of([model])
    changes = [f"{name} changed" for name, value in before.items() if now[name] != value]
    if not same(plain, run(model, inputs)):
        changes.append("a plain forward returns another output than before")
    changes += calls.changes(model)
    if changes:
        raise _EndedError("wrong", "; ".join(changes))
    comparison = compare(record, *own)
    if not comparison.right:
        comparison = _under_eager(row, model, inputs, comparison, own)
    if not comparison.right and not comparison.unmatched and comparison.error <= ROUNDED:
        return _in_double(row, model, inputs, comparison, override), double_weights()
    return comparison, nullcontext()


def _demand(row: Row, comparison: Comparison, inputs: Mapping[str, Any]) -> None:
    """Raise `_EndedError` if the record is wrong or incomplete, or could not be compared.

    A record is incomplete if it lacks weights that the model returns, or queries of a text. The
    result in the error is "partly" if all compared weights are right, weights are missing, and the
    extraction gave a warning. Otherwise the result is "wrong".
    """
    if not comparison.right:
        warned = any(note.startswith("UserWarning") for note in row.notes)
        only_missing = warned and comparison.error <= TOLERANCE and comparison.matches
        raise _EndedError("partly" if only_missing else "wrong", _differences(comparison))
    # If the model's own weights of a layer are not known, check at least that the layer has one
    # query for each token of its text.
    short = [
        f"{stack} {number}: {attention.num_queries} rows for {inputs[text].shape[1]} tokens"
        for layers in comparison.unverified.values()
        for stack, number, attention in layers
        if isinstance(inputs.get(text := _TEXT_OF.get(stack, "")), torch.Tensor)
        and attention.num_queries != inputs[text].shape[1]
    ]
    if short:
        raise _EndedError("wrong", "; ".join(short))


# For each stack, the argument of the model whose tokens are the queries.
_TEXT_OF = {
    "self": "input_ids",
    "encoder": "input_ids",
    "decoder": "decoder_input_ids",
    "cross": "decoder_input_ids",
}


def _prepared(
    row: Row, case: Case, override: Mapping[str, Any]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Make the model of a case, and find inputs that the model accepts.

    Raise `_EndedError` if one of these steps fails, if `override` says that the model type is
    skipped, or if the model's output contains NaN.
    """
    if "skip" in override:
        raise _EndedError("not built", override["skip"])
    try:
        model = tiny_model(case.model_type, override["class"], override["config"])
    except Exception as error:
        raise _EndedError("not built", error) from error
    row.kind = type(model).__name__
    try:
        inputs = find_inputs(model, lambda candidate: run(model, candidate), override["inputs"])
    except Exception as error:
        raise _EndedError("no inputs", error) from error
    row.inputs = list(inputs)
    output = run(model, inputs)
    if any(bool(one.isnan().any()) for one, _ in pairs_of_tensors(output, output)):
        raise _EndedError("no inputs", "the tiny model returns NaN")
    return model, inputs


def _sharpened(
    row: Row, model: PreTrainedModel, inputs: Mapping[str, Any], override: Mapping[str, Any]
) -> _Own:
    """Sharpen the model (see `sharpen`), and return its own weights.

    If `override` forbids sharpening, only return the weights. Raise `_EndedError` if the model
    returns no weights, or if it fails.
    """

    def current() -> tuple[Weights, dict[str, list[torch.Tensor]]]:
        return _own(eager_copy(model), inputs, override)

    def measured() -> dict[str, list[torch.Tensor]]:
        own, calls = current()
        layers = [layer for layers in own.values() for layer in layers if layer is not None]
        return {**calls, "": layers or [layer for layers in calls.values() for layer in layers]}

    try:
        if override.get("sharpen", True) and measured()[""]:
            sharpen(model, measured)
        row.peak = peak(measured()[""]) if measured()[""] else None
        own, calls = current()
        own |= _linear(model, inputs)
    except Exception as error:
        raise _EndedError("no own weights", _reading(row, model, inputs)) from error
    modules = by_pattern(calls)
    if not own and not modules:
        raise _EndedError("no own weights", _reading(row, model, inputs))
    row.source = "output" if own.keys() - {"linear matrices"} else "modules"
    return own, modules


def _reading(row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]) -> str:
    """Return whether attnviz reads a model that returns no weights: `READ`, or why it does not."""
    try:
        _extracted(row, model, inputs)
    except _EndedError as end:
        return NO_ATTENTION if "has no attention to show" in end.reason else end.reason
    return READ


def _linear(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Weights:
    """Return the matrices of the linear layers in the form of the model's own weights."""
    matrices = linear_matrices(model, inputs)
    return {"linear matrices": matrices} if matrices else {}


def _own(
    eager: PreTrainedModel, inputs: Mapping[str, Any], override: Mapping[str, Any]
) -> tuple[Weights, dict[str, list[torch.Tensor]]]:
    """Return the weights in an eager model's output, and the weights that its modules return.

    The first dict has the fields of the output, except those that `override` lists in "left_out".
    The first dict is empty if the model fails when it is asked to return weights, but its modules
    return weights. The keys of the second dict are the names of the modules.
    """
    left_out = override.get("left_out", ())
    calls = module_calls(eager, inputs)
    try:
        own = own_weights(eager, inputs)
    except (IndexError, TypeError, ValueError):
        if not calls:
            raise
        own = {}
    return {name: own[name] for name in own if name not in left_out}, calls


def _extracted(row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]) -> AttentionRecord:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw_the_same(model)
        try:
            record = attnviz.extract(model, copy.deepcopy(dict(inputs)), progress=False)
        except Exception as error:
            raise _EndedError("refused", error) from error
    if isinstance(record, list):
        raise _EndedError("wrong", f"a list of {len(record)} records for one example")
    row.notes = [*record.notes, *(f"{w.category.__name__}: {w.message}"[:200] for w in caught)]
    row.stacks = [
        f"{name} {stack.num_layers} x {max(stack.heads_per_layer)}"
        for name, stack in record.stacks.items()
    ]
    layers = [stack.attention(n) for stack in record.stacks.values() for n in stack.layers]
    kept = {
        "queries and keys": any(isinstance(layer, QueryKeyAttention) for layer in layers),
        "inputs of linear layers": any(isinstance(layer, StateAttention) for layer in layers),
        "weights": any(isinstance(layer, StoredWeights) for layer in layers),
    }
    row.way = " / ".join(way for way, is_kept in kept.items() if is_kept)
    extracted: AttentionRecord = record
    return extracted


def _change(row: Row, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
    """Change the attention of each stack, and store the results in `row.changes`.

    If no change can be tried, store the error in `row.unchanged`.
    """
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
    comparison: Comparison,
    own: _Own,
) -> Comparison:
    """Repeat a failed comparison with a record of the eager copy of the model.

    In some models, eager attention computes something else than the default attention. The own
    weights come from the eager copy, so a record of the model itself cannot equal them.

    Return the new comparison if it is right, and if the outputs of the model and its eager copy
    differ by more than 0.01 and by more than 1% of the model's largest output. Otherwise return
    `comparison`, the failed one.
    """
    eager = eager_copy(model)
    pairs = pairs_of_tensors(run(model, inputs), run(eager, inputs))
    differ = any(
        float((one - other).abs().max()) > 1e-2 * max(1.0, float(one.abs().max()))
        for one, other in pairs
    )
    notes = row.notes
    if not differ:
        return comparison
    compared = compare(_extracted(row, eager, inputs), *own)
    if not compared.right:
        return comparison
    row.notes = [*notes, DIFFERENT]
    return compared


def _in_double(
    row: Row,
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    comparison: Comparison,
    override: Mapping[str, Any],
) -> Comparison:
    """Repeat a failed comparison in float64.

    If all keys are similar, `sharpen` needs very large logits (up to 11,000) for clear maxima. The
    spacing of float32 numbers of this size is 0.001. Therefore, even two right computations differ
    by more than `TOLERANCE`. Return the new comparison if it is right. Otherwise return
    `comparison`, the failed one.
    """
    exact = {
        name: value.double() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    eager = copy.deepcopy(eager_copy(model)).double()
    with double_softmax():
        own, modules = _own(eager, exact, override)
    notes = row.notes
    record = _extracted(row, copy.deepcopy(model).double(), exact)
    with double_weights():
        compared = compare(record, own, by_pattern(modules))
    if not compared.right:
        return comparison
    row.notes = [*notes, f"{ROUNDING} ({comparison.error:.0e})"]
    return compared


def _differences(comparison: Comparison) -> str:
    wrong = [match for match in comparison.matches if not match.error <= TOLERANCE]
    differences = [*comparison.unmatched, *map(_errors, wrong)]
    return "; ".join(differences) or "no stack could be compared"


def _errors(match: Match) -> str:
    errors = [f"{pair.stack} {pair.layer} {pair.error:.1e}" for pair in match.pairs]
    return f"{match.field} -> {match.stack}: {', '.join(errors[:6])}"
