"""Effect on the model's answer if the weights of one query are permuted among its keys.

The answer is a number in the model's output, such as the logit of one token minus that of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.layer_change import LayerChange
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.interventions.answer import Answer, exact_row
from attnviz.interventions.example import Example
from attnviz.interventions.runner import Copy, Runner
from attnviz.record.attention import StoredWeights
from attnviz.record.edited import ReplacedWeights
from attnviz.utils.arguments import whole_number
from attnviz.utils.numbers import compare_to_noise


@dataclass(frozen=True, eq=False)
class PermutationEffect:
    """Changes of an answer when the weights of one query are permuted.

    Attributes
    ----------
    values : ndarray of float64
        One number per permutation, (permutations,). By default, the total variation distance
        between the model's predicted distributions before and after the permutation, from 0 to 1.
        With ``answer=``, or if the model has fewer than two logits, the absolute change of the
        answer.
    noise : float
        Bound of the rounding error of `values`, as in `Effect`. It is at least the number as in
        `values` for a run without a permutation, in which the output of the query is computed again
        from the unchanged weights.
    num_keys : int
        Number of keys among which the weights were permuted.
    measure : str
        Description of what is compared, such as "distribution of the answer".

    Examples
    --------
    >>> PermutationEffect(np.array([0.1, 0.5, 0.3]), 0.1, 4, "loss")
    <PermutationEffect: loss moves by 0.3, the median of 3 permutations (larger than the noise 0.1)>
    """

    values: NDArray[np.float64]
    noise: float
    num_keys: int
    measure: str

    def __repr__(self) -> str:
        return (
            f"<PermutationEffect: {self.measure} moves by {self.median:.4g}, the median of "
            f"{len(self.values)} permutations ({compare_to_noise(self.median, self.noise)})>"
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

    If the answer does not change, the answer does not depend on which key gets which weight of this
    query in this head (Jain and Wallace 2019, arXiv 1902.10186, section 4.2). Only the keys that
    the query may attend to are permuted.

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
        If the attention cannot be changed, for example because the module also attends to padding.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                                # doctest: +SKIP
    >>> av.permutation_effect(model, "a b c a b", layer=1, head=0,
    ...                       tokenizer=tokenizer).median                          # doctest: +SKIP
    """
    permutations = whole_number("permutations", permutations, 1, hint="100 or so")
    example = Example.one(model, inputs, target, options)
    # `kept` is 1, because the output of each layer is stored: one vector per token.
    example.check_runs("permuting weights", kept=lambda _: 1)
    runner = Runner(example, CaptureOptions())
    _ask(runner, answer, position)
    attention_stack = runner.record.stack(stack)
    layer = attention_stack.layer_number(layer)
    head = attention_stack.head_number(layer, head)
    token = attention_stack.query_tokens.position(query, "query")
    attention, row = attention_stack.attention(layer), slice(token, token + 1)
    weights = attention.block([head], row)[0].cpu().numpy()
    keys = np.flatnonzero(attention.allowed([head], row)[0, 0].numpy())
    if len(keys) < 2:
        raise ValueError(
            f"query={query!r} may attend to {len(keys)} key. Pass a query with several keys."
        )
    generator = np.random.default_rng(seed)
    rows = np.repeat(weights, permutations + 1, axis=0)
    for number in range(1, permutations + 1):
        rows[number, keys] = weights[0, generator.permutation(keys)]
    num_queries = len(attention_stack.query_tokens)
    is_permuted = np.arange(num_queries) == token
    copies = []
    for row in rows:
        source = StoredWeights(torch.from_numpy(row).expand(1, num_queries, -1))
        attend = partial(ReplacedWeights, replacements={head: (source, 0)}, rows=is_permuted)
        change = LayerChange((num_queries, len(row)), attend, {head: np.array([token])})
        copies.append(Copy({runner.module_runs[attention_stack.name, layer]: change}))
    answers = np.array(runner.answers(copies, doing="permutations", unit="forward"))
    again, *values = np.abs(answers - runner.before)
    noise = max(float(again), runner.noise)
    return PermutationEffect(np.array(values), noise, len(keys), runner.answer.measure)


def _ask(runner: Runner, answer: Any, position: int | str | None) -> None:
    """Set the number that `runner` measures.

    If `answer` is None and the model has at least two logits, this number is the total variation
    distance between the predicted distribution and that of the unchanged run. Otherwise it is the
    answer.
    """
    runner.read_after(position, answer)
    before = exact_row(runner.outputs, runner.reading.row)
    if answer is not None or before is None:
        runner.ask(answer, position)
        return
    shares = torch.softmax(before, dim=-1)

    def variation(outputs: Any) -> torch.Tensor:
        row = exact_row(outputs, runner.reading.row)
        if row is None:
            raise TypeError("the outputs of a copy have no logits")
        return (torch.softmax(row, dim=-1) - shares).abs().sum() / 2

    measure = "distribution of the answer"
    runner.answer = Answer(measure, runner.outputs, runner.reading.row, function=variation)
    runner.before = 0.0
