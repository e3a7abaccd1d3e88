"""Effect on the answer if the weights of one query are permuted among its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.change import output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.interventions.answer import Reading, answer_of, exact_row, reading_of
from attnviz.interventions.copies import Copies, ModuleRun
from attnviz.interventions.runs import ExampleRunner
from attnviz.utils.arguments import whole_number

__all__ = ["PermutationEffect", "permutation_effect"]

# Maximum number of tokens in one batch, over all copies of a text.
_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class PermutationEffect:
    """Changes of an answer when the weights of one query are permuted.

    Attributes
    ----------
    values : ndarray of float64
        One number per permutation, (permutations,). By default, the total variation distance
        between the model's predicted distributions before and after the permutation, from 0 to 1.
        With ``answer=``, or if the model has no logits, the absolute change of the answer.
    noise : float
        The same number for a copy whose output is computed again from the unchanged weights: the
        rounding error of the measurement.
    num_keys : int
        Number of keys among which the weights were permuted.
    measure : str
        Description of what is compared, such as "distribution of the answer".

    Examples
    --------
    >>> PermutationEffect(np.array([0.1, 0.5, 0.3]), 0.0, 4, "value of loss")
    <PermutationEffect: value of loss moves by 0.3, the median of 3 permutations (noise 0)>
    """

    values: NDArray[np.float64]
    noise: float
    num_keys: int
    measure: str

    def __repr__(self) -> str:
        return (
            f"<PermutationEffect: {self.measure} moves by {self.median:.4g}, the median of "
            f"{len(self.values)} permutations (noise {self.noise:.2g})>"
        )

    @property
    def median(self) -> float:
        """Median of the changes in `values`."""
        return float(np.median(self.values))


def permutation_effect(
    model: Any,
    inputs: Any,
    *,
    layer: int,
    head: int,
    query: int | str = -1,
    answer: Any = None,
    position: int | str | None = None,
    permutations: int = 100,
    seed: int = 0,
    stack: str | None = None,
    target: str | None = None,
    **options: Unpack[RecordOptions],
) -> PermutationEffect:
    """Permute the weights of one query among its keys, and measure the change of the answer.

    If the answer does not change, the model does not depend on which of the keys the head attends
    to (Jain and Wallace 2019, arXiv 1902.10186, section 4.2).

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    layer, head : int
        Layer and head, as the model numbers them.
    query : int or str, default -1
        Token whose weights are permuted, by position or text.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. By default, the predicted distributions over all tokens or
        classes are compared.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default.
    permutations : int, default 100
        Number of random permutations.
    seed : int, default 0
        Seed of the permutations.
    stack : str, optional
        Name of the stack, the first one by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    PermutationEffect

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit, or the query has fewer than two keys.
    MemoryError
        If the copies of the text in one batch need more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If the attention module does not use the attention dispatcher of transformers, or also
        attends to padding.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                                # doctest: +SKIP
    >>> av.permutation_effect(model, "a b c a b", layer=1, head=0,
    ...                       tokenizer=tokenizer).median                          # doctest: +SKIP
    """
    permutations = whole_number("permutations", permutations, 1, hint="100 or so")
    runner = ExampleRunner.one(model, inputs, target, None, options)

    def copies_per_batch(num_tokens: int) -> int:
        """Return the number of copies in one batch. The first batch has one unchanged copy."""
        return min(permutations + 1, max(1, _AT_ONCE // num_tokens))

    # `Copies` stores one vector per token and layer: the output of the layer.
    runner.check_runs("permuting weights", copies=copies_per_batch, kept=lambda _: 1)
    forward = runner.forward(CaptureOptions(), None)
    record = runner.record(forward, CaptureOptions())
    reading = reading_of(record, position, forward.outputs, runner.batch, answer)
    attention_stack = record.stack(stack)
    layer = attention_stack.layer_number(layer)
    head = attention_stack.head_number(layer, head)
    token = attention_stack.query_tokens.position(query, "query")
    weights, allowed = attention_stack.attention(layer).weights_of_rows(head, np.array([token]))
    keys = np.flatnonzero(allowed[0])
    if len(keys) < 2:
        raise ValueError(
            f"query={query!r} may attend to {len(keys)} key. Pass a query with several keys."
        )
    layers = forward.stacks[attention_stack.name]
    run = layers.runs[list(layers.examples[0]).index(layer)]
    module_run = run.name, run.turn
    generator = np.random.default_rng(seed)
    rows = np.repeat(weights, permutations + 1, axis=0)
    for number in range(1, permutations + 1):
        rows[number, keys] = weights[0, generator.permutation(keys)]
    copies = Copies(runner.loaded.model, runner.batch, reading.logits(answer))
    moved, measure = _moved(runner, copies.outputs, answer, reading)
    values: list[float] = []
    num_copies = copies_per_batch(len(attention_stack.query_tokens))
    for start in range(0, len(rows), num_copies):
        chunk = rows[start : start + num_copies]
        changed = _changed(copies, module_run, head, token, chunk)
        values += [moved(changed, copy) for copy in range(len(chunk))]
    return PermutationEffect(np.array(values[1:]), values[0], len(keys), measure)


def _changed(
    copies: Copies, module_run: ModuleRun, head: int, token: int, rows: NDArray[np.float32]
) -> Any:
    """Run one copy for each row of weights, and return the outputs of the model.

    In copy i, the query at position `token` has the weights ``rows[i]`` in one head.
    """
    reached: list[ModuleRun] = []

    def attend(call: AttentionCall, current: ModuleRun) -> None:
        if current != module_run or call.value is None:
            return
        output = output_by_head(call, module_run[0])
        group = call.num_heads // call.value.shape[1]
        values = call.value[0, head // group].float()
        if values.shape[0] != rows.shape[1] or output.shape[1] <= token:
            raise NotImplementedError(
                f"model: {module_run[0]} also attends to padding. Pass the text without padding."
            )
        output[:, token, head] = (torch.from_numpy(rows).to(values.device) @ values).to(output)
        reached.append(module_run)

    outputs = copies.run(len(rows), attend, before=module_run)
    if not reached:
        raise NotImplementedError(
            f"model: {module_run[0]} computes its attention without the dispatcher of "
            "transformers, so that its weights cannot be permuted"
        )
    return outputs


def _moved(
    runner: ExampleRunner, outputs: Any, answer_argument: Any, reading: Reading
) -> tuple[Callable[[Any, int], float], str]:
    """Return a function that measures the change of one copy, and a description of the measure.

    The function takes the outputs of a batch and the index of a copy. `outputs` are the unchanged
    outputs.
    """
    before = exact_row(outputs, reading.row)
    if answer_argument is not None or before is None:
        answer = answer_of(runner, outputs, answer_argument, reading)
        value = answer.value(outputs)
        return lambda changed, copy: abs(answer.value(changed, copy) - value), answer.measure
    shares = torch.softmax(before, dim=-1)

    def variation(changed: Any, copy: int) -> float:
        row = exact_row(changed, reading.row, copy)
        if row is None:
            raise TypeError("the outputs of a copy have no logits")
        return float((torch.softmax(row, dim=-1) - shares).abs().sum() / 2)

    return variation, "distribution of the answer"
