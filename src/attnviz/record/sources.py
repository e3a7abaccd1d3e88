"""Sources of a token: the keys to which the query that predicted the token attends.

The query is usually that of the token before. Its weights are averaged over all heads of a stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.record.stack import AttentionStack, check_weights
from attnviz.record.table import require_pandas
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.arguments import format_numbers, whole_number

if TYPE_CHECKING:
    import pandas as pd

#: Sentences about what the numbers of `Sources` do not show.
CAVEATS = (
    "Weights show attention, not influence on the output: attention is not attribution.",
    "The mean weights all heads equally and hides differences between heads.",
)


@dataclass(frozen=True, eq=False, repr=False)
class Sources:
    """Weights of the query that predicted a token, averaged over all heads of a stack.

    Attributes
    ----------
    token : str
        Display text of the predicted token.
    query : int
        Position of the query that predicted the token.
    stack : str
        Name of the stack.
    heads : ndarray of int64, (heads, 2)
        Layer number and head number of each head.
    means : ndarray of float64, (keys,)
        Mean weight of the query on each key, over all heads of all layers of the stack.
    strongest_heads : ndarray of int64, (keys,)
        For each key, the index into `heads` of the head with the largest weight on the key. 0 if
        no head has weight on the key.
    most : ndarray of float32, (keys,)
        For each key, this largest weight.
    baseline : ndarray of float64, (keys,)
        `means` for uniform attention, in which each head has the same weight on all keys that its
        mask allows.
    query_tokens, key_tokens : Tokens
        Tokens of the queries and of the keys of the stack.
    caveats : tuple of str
        Sentences about what the numbers do not show.

    See Also
    --------
    attnviz.record.record.AttentionRecord.sources : creates this object, with an example.
    """

    token: str
    query: int
    stack: str
    heads: NDArray[np.int64]
    means: NDArray[np.float64]
    strongest_heads: NDArray[np.int64]
    most: NDArray[np.float32]
    baseline: NDArray[np.float64]
    query_tokens: Tokens
    key_tokens: Tokens
    caveats: tuple[str, ...] = CAVEATS

    def top(self, count: int = 5) -> NDArray[np.int64]:
        """Return the positions of the keys with the largest means.

        Parameters
        ----------
        count : int, default 5
            Maximum number of keys.

        Returns
        -------
        ndarray of int64
            Positions in descending order of the means. Keys with a mean of 0 are omitted.
        """
        order = np.argsort(-self.means, kind="stable")[: whole_number("count", count, 1)]
        return order[self.means[order] > 0]

    def to_pandas(self) -> pd.DataFrame:
        """Return the numbers as a tidy table.

        Returns
        -------
        pandas.DataFrame
            One row per key whose mean is not 0, in descending order of the mean. The columns are
            ``key``, ``key_token``, ``mean``, ``baseline``, ``strongest_layer``, ``strongest_head``
            and ``strongest_weight``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        require_pandas()
        import pandas as pd

        top = self.top(max(1, len(self.means)))
        strongest = self.heads[self.strongest_heads[top]]
        return pd.DataFrame(
            {
                "key": top,
                "key_token": pd.Categorical([self.key_tokens.text[key] for key in top.tolist()]),
                "mean": self.means[top],
                "baseline": self.baseline[top],
                "strongest_layer": strongest[:, 0],
                "strongest_head": strongest[:, 1],
                "strongest_weight": self.most[top],
            }
        )

    def __repr__(self) -> str:
        """Return five lines: the query and the four strongest keys."""
        return "\n".join(self._lines(4))

    def __str__(self) -> str:
        return "\n".join([*self._lines(5), *self.caveats])

    def _lines(self, num_keys: int) -> list[str]:
        count = len(self.heads)
        lines = [
            f"{quote(self.query_tokens.text[self.query])} ({self.query}) predicting "
            f"{quote(self.token)}: mean weight over {count} head{'s' if count > 1 else ''} of "
            f"stack {quote(self.stack)}"
        ]
        for key in self.top(num_keys).tolist():
            layer, head = self.heads[self.strongest_heads[key]]
            token = quote(self.key_tokens.text[key])
            lines.append(
                f"  {self.means[key]:.3f}  {token} ({key}), uniform attention "
                f"{self.baseline[key]:.3f}; most in layer {layer}, head {head}: "
                f"{self.most[key]:.2f}"
            )
        return lines


def find_sources(stack: AttentionStack, token: int | str) -> Sources:
    """Return the result of `AttentionRecord.sources` for a stack."""
    check_weights(stack, "sources of a token")
    query, text = _predicting(stack, token)
    num_keys = len(stack.key_tokens)
    heads: list[tuple[int, int]] = []
    means, baseline = np.zeros(num_keys), np.zeros(num_keys)
    most, strongest = np.zeros(num_keys, np.float32), np.zeros(num_keys, np.int64)
    for layer in stack.layers:
        attention, row = stack.attention(layer), slice(query, query + 1)
        layer_heads = range(stack.num_heads(layer))
        weights = attention.block(layer_heads, row)[:, 0].cpu().numpy()
        if not np.isfinite(weights).all():
            raise ValueError(
                f"stack {stack.name!r}, layer {layer}: weights of query {query} are NaN or "
                "infinite. Run the model in float32, or exclude the layer."
            )
        allowed = attention.allowed(layer_heads, row)[:, 0].expand(len(weights), -1).numpy()
        stronger = weights.max(axis=0) > most
        strongest[stronger] = len(heads) + weights.argmax(axis=0)[stronger]
        most = np.maximum(most, weights.max(axis=0))
        heads += [(layer, head) for head in layer_heads]
        means += weights.sum(axis=0, dtype=np.float64)
        baseline += (allowed / np.maximum(1, allowed.sum(axis=1, keepdims=True))).sum(axis=0)
    return Sources(
        token=text,
        query=query,
        stack=stack.name,
        heads=np.array(heads, np.int64),
        means=means / len(heads),
        strongest_heads=strongest,
        most=most,
        baseline=baseline / len(heads),
        query_tokens=stack.query_tokens,
        key_tokens=stack.key_tokens,
    )


def _predicting(stack: AttentionStack, token: int | str) -> tuple[int, str]:
    """Return the position of the query that predicted a token, and the token's text.

    `token` is as in `AttentionRecord.sources`. Raise ValueError or IndexError if no query of the
    stack predicted the token, or several predicted tokens have its text.
    """
    tokens, predictions = stack.query_tokens, stack.query_tokens.predictions
    if not predictions:
        position = tokens.position(token) if stack.causal else 0
        if position == 0:
            raise ValueError(
                f"token={token!r}: no query of stack {stack.name!r} predicted it. Extract with "
                "generate= or target=, or pass a causal stack and a token after the first."
            )
        return position - 1, tokens.text[position]
    positions = [
        prediction.query + 1 if prediction.row is None else prediction.row
        for prediction in predictions
    ]
    if isinstance(token, str):
        indices = Tokens.of([prediction.token.text for prediction in predictions]).positions(token)
        if len(indices) != 1:
            raise ValueError(
                f"token={token!r} was produced {len(indices)} times. Pass one of the positions of "
                f"produced tokens: {format_numbers(positions)}"
            )
        [index] = indices
    else:
        number = whole_number("token", token)
        index = positions.index(number) if number in positions else number + len(positions)
        if number not in positions and number not in range(-len(positions), 0):
            raise IndexError(
                f"token={token!r} was not produced by the model. The produced tokens are at the "
                f"positions {format_numbers(positions)}."
            )
    return predictions[index].query, predictions[index].token.text
