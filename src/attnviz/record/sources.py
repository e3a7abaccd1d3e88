"""Where a produced token came from: what every head attended to while the model chose it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.record.stack import AttentionStack, need_weights
from attnviz.record.table import need_pandas
from attnviz.record.tokens import Prediction, Tokens, quoted
from attnviz.utils.arguments import whole_number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CAVEATS", "Sources", "sources_of_token"]

#: What the numbers do not say.
CAVEATS = (
    "Weights say what was looked at, not what made a difference: attention is not attribution.",
    "The mean counts every head alike, and hides heads that disagree.",
)
_IN_WORDS = 5


@dataclass(frozen=True, eq=False)
class Sources:
    """What all heads attended to, from the query that predicted a token.

    Attributes
    ----------
    token : str
        The token that was produced, as it is shown; empty where that is not known.
    query : int
        The query that predicted it, whose row of weights this is.
    stack : str
        The stack.
    heads : ndarray of int64, (heads, 2)
        Layer and head, of all heads.
    means : ndarray of float64, (keys,)
        Mean weight of each key over all heads, each counted alike.
    strongest_heads : ndarray of int64, (keys,)
        Which of `heads` gives a key most.
    most : ndarray of float32, (keys,)
        What that head gives it.
    even : ndarray of float64, (keys,)
        What each key would have if every head attended evenly to all keys that its mask allows.
    query_tokens, key_tokens : Tokens
        The tokens of the stack.
    caveats : tuple of str
        What the numbers do not say.

    See Also
    --------
    attnviz.record.record.AttentionRecord.sources : makes them, with an example.
    """

    token: str
    query: int
    stack: str
    heads: NDArray[np.int64]
    means: NDArray[np.float64]
    strongest_heads: NDArray[np.int64]
    most: NDArray[np.float32]
    even: NDArray[np.float64]
    query_tokens: Tokens = field(repr=False)
    key_tokens: Tokens = field(repr=False)
    caveats: tuple[str, ...] = CAVEATS

    def top(self, count: int = _IN_WORDS) -> NDArray[np.int64]:
        """The keys with the largest means, the largest first; those without weight left out.

        Parameters
        ----------
        count : int, default 5
            How many.

        Returns
        -------
        ndarray of int64
        """
        order = np.argsort(-self.means, kind="stable")[: whole_number("count", count, 1)]
        return order[self.means[order] > 0]

    def to_pandas(self) -> pd.DataFrame:
        """The numbers as a tidy table.

        Returns
        -------
        pandas.DataFrame
            A row for each key that has any weight, with ``key``, ``key_token``, ``mean``, ``even``,
            ``strongest_layer``, ``strongest_head``, ``strongest_weight``, by falling mean.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        need_pandas()
        import pandas as pd

        top = self.top(max(1, len(self.means)))
        strongest = self.heads[self.strongest_heads[top]]
        return pd.DataFrame(
            {
                "key": top,
                "key_token": pd.Categorical([self.key_tokens.text[key] for key in top.tolist()]),
                "mean": self.means[top],
                "even": self.even[top],
                "strongest_layer": strongest[:, 0],
                "strongest_head": strongest[:, 1],
                "strongest_weight": self.most[top],
            }
        )

    def __str__(self) -> str:
        of = f" predicting {quoted(self.token)}" if self.token else ""
        count = len(self.heads)
        lines = [
            f"{quoted(self.query_tokens.text[self.query])} ({self.query}){of}: mean weight over "
            f"{count} head{'s' if count > 1 else ''} of stack {quoted(self.stack)}"
        ]
        for key in self.top().tolist():
            layer, head = self.heads[self.strongest_heads[key]]
            token = quoted(self.key_tokens.text[key])
            lines.append(
                f"  {self.means[key]:.3f}  {token} ({key}), even attention "
                f"{self.even[key]:.3f}; most in layer {layer}, head {head}: {self.most[key]:.2f}"
            )
        return "\n".join([*lines, *self.caveats])


def sources_of_token(stack: AttentionStack, token: int | str) -> Sources:
    """Sources of a produced token; see `AttentionRecord.sources`."""
    need_weights(stack, "sources of a token")
    query, text = _predicting(stack, token)
    num_keys = len(stack.key_tokens)
    heads: list[tuple[int, int]] = []
    means, even = np.zeros(num_keys), np.zeros(num_keys)
    most, strongest = np.zeros(num_keys, np.float32), np.zeros(num_keys, np.int64)
    for layer in stack.layers:
        attention = stack.attention(layer)
        for head in range(stack.num_heads(layer)):
            found, allowed = attention.weights_of_rows(head, np.array([query]))
            weights, seen = found[0], allowed[0]
            if not np.isfinite(weights).all():
                raise ValueError(
                    f"stack {stack.name!r}, layer {layer}, head {head}: weights of query {query} "
                    "are NaN or infinite; run the model in float32, or leave the layer out"
                )
            stronger = weights > most
            strongest[stronger], most[stronger] = len(heads), weights[stronger]
            heads.append((layer, head))
            means += weights
            even += seen / max(1, np.count_nonzero(seen))
    return Sources(
        token=text,
        query=query,
        stack=stack.name,
        heads=np.array(heads, np.int64).reshape(-1, 2),
        means=means / len(heads),
        strongest_heads=strongest,
        most=most,
        even=even / len(heads),
        query_tokens=stack.query_tokens,
        key_tokens=stack.key_tokens,
    )


def _predicting(stack: AttentionStack, token: int | str) -> tuple[int, str]:
    """The query that predicted a token, and the token's text."""
    tokens, predictions = stack.query_tokens, stack.query_tokens.predictions
    if predictions:
        each = predictions[_produced(predictions, token)]
        return each.query, each.token.text
    if not stack.causal or len(tokens) < 2:
        raise ValueError(
            f"stack {stack.name!r} has no produced tokens, and its queries do not predict what "
            "follows them: extract with generate= or target=, or choose a causal stack"
        )
    position = tokens.position(token)
    if position == 0:
        raise ValueError(
            f"token={token!r} is the first token, which no query predicted; choose one of 1 to "
            f"{len(tokens) - 1}"
        )
    return position - 1, tokens.text[position]


def _produced(predictions: tuple[Prediction, ...], token: int | str) -> int:
    """Which of the produced tokens is meant."""
    positions = [each.query + 1 if each.row is None else each.row for each in predictions]
    texts = Tokens.of([each.token.text for each in predictions])
    if isinstance(token, str):
        found = texts.positions(token)
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(str(positions[place]) for place in found)
            raise ValueError(
                f"token={token!r} was produced {len(found)} times: give its position, {places}"
            )
        shown = ", ".join(repr(text) for text in texts.text[:12])
        more = ", ..." if len(texts) > 12 else ""
        raise ValueError(f"token={token!r} was not produced; produced were {shown}{more}")
    number = whole_number("token", token, -len(predictions), hint="a position, or -1 for the last")
    if number < 0:
        return len(predictions) + number
    if number in positions:
        return positions.index(number)
    raise IndexError(
        f"token={token!r} was not produced by the model; produced were the tokens "
        f"{positions[0]} to {positions[-1]}"
    )
