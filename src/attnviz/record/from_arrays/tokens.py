"""Conversion of the tokens that a caller passes to `Tokens`.

A caller passes display texts, or vocabulary entries such as ``Ġthe``, which are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.record.tokens import Tokens, token_strings
from attnviz.record.vocabulary import display_texts, guess_alphabet
from attnviz.utils.arguments import whole_number


@dataclass(frozen=True)
class ProjectedKeys:
    """Description of keys that combine several tokens. Pass it as ``key_tokens=``.

    Linformer (Wang et al. 2020, arXiv 2006.04768) projects the n keys and values of a text to k
    keys and values. Its weights are therefore n x k. According to section 4 of the paper, the
    projection is a dense layer, or a convolution or pooling with a kernel and a stride of n / k.

    Attributes
    ----------
    kernel : int or None
        Number of consecutive tokens that a convolution or pooling combines into a key. None (the
        default) for a dense layer, in which each key combines all tokens. The columns are then
        named ``projection 0``, ``projection 1``, ..., and a note of the record states that columns
        do not correspond to tokens.
    stride : int or None
        Distance in tokens between the starts of consecutive keys, by default `kernel`.
    padding : int
        Number of padding positions at each end of the text, by default 0.

    Raises
    ------
    TypeError, ValueError
        If `kernel` or `stride` is not a positive integer, or `padding` is not an integer of at
        least 0. Also if `stride` or `padding` is passed without `kernel`.

    Notes
    -----
    Key j combines `kernel` consecutive positions, the first of which is ``j * stride - padding``,
    as in `torch.nn.Conv1d` and `torch.nn.AvgPool1d`. Positions outside the text are padding. The
    number of keys may be rounded down, or up as in pooling with ``ceil_mode=True``. If it is
    rounded up, the last key combines fewer tokens.

    Examples
    --------
    >>> tokens = Tokens.of(["the", "cat", "sat", "on", "the", "mat"])
    >>> ProjectedKeys(kernel=3).tokens(tokens, 2).text
    ('the … sat (0–2)', 'on … mat (3–5)')
    >>> ProjectedKeys().tokens(tokens, 2).text
    ('projection 0', 'projection 1')
    """

    kernel: int | None = None
    stride: int | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        for name, number, minimum in (
            ("kernel", self.kernel, 1),
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
        ):
            if number is not None:
                whole_number(name, number, minimum)
        if self.kernel is None and (self.stride is not None or self.padding):
            raise ValueError(
                "stride= and padding= need kernel=. Pass kernel= as well, or none of the three "
                "for a dense projection."
            )

    def tokens(self, tokens: Tokens, num_keys: int) -> Tokens:
        """Return tokens whose texts are the names of the keys in views.

        Parameters
        ----------
        tokens : Tokens
            Tokens of the text from which the keys are computed.
        num_keys : int
            Number of keys.

        Returns
        -------
        Tokens
            One token per key. Its text contains the first and the last token that the key combines,
            and their positions, as in ``the … sat (0–2)``. If the key combines only one token, the
            text contains this token and its position, as in ``the (0)``. For a dense projection,
            texts are ``projection 0``, ``projection 1``, ...

        Raises
        ------
        ValueError
            If the projection of these tokens does not have `num_keys` keys.
        """
        if self.kernel is None:
            dense = [f"projection {number}" for number in range(num_keys)]
            return self._named(dense, [None] * num_keys)
        texts, sequence = [], []
        for group in self._groups(len(tokens), num_keys):
            first, last = group[0], group[-1]
            words = tokens[first] if first == last else f"{tokens[first]} … {tokens[last]}"
            positions = f"{first}" if first == last else f"{first}–{last}"
            texts.append(f"{words} ({positions})")
            # A key that combines tokens of both texts of a pair belongs to neither text.
            numbers = {tokens.sequence[position] for position in group} - {None}
            sequence.append(numbers.pop() if len(numbers) == 1 else None)
        return self._named(texts, sequence)

    def notes(self, num_keys: int) -> list[str]:
        """Return the notes that views of the weights must show.

        Parameters
        ----------
        num_keys : int
            Number of keys.

        Returns
        -------
        list of str
            One note for a dense projection, otherwise an empty list.
        """
        if self.kernel is not None:
            return []
        return [
            f"The {num_keys} keys are combinations of all tokens by a dense projection, as in "
            "Linformer: columns do not correspond to tokens."
        ]

    def _groups(self, num_tokens: int, num_keys: int) -> list[range]:
        kernel = self.kernel or 1
        stride = self.stride or kernel
        steps = num_tokens + 2 * self.padding - kernel
        # Both are valid: the number of keys is rounded down, or up as with ceil_mode in pooling.
        counts = {steps // stride + 1, -(-steps // stride) + 1}
        starts = [key * stride - self.padding for key in range(num_keys)]
        groups = [range(max(0, start), min(num_tokens, start + kernel)) for start in starts]
        if num_keys not in counts or not all(groups):
            raise ValueError(
                f"key_tokens={self!r} gives {max(0, min(counts))} keys for {num_tokens} tokens, "
                f"but there are {num_keys}. Pass the projection's kernel, stride and padding "
                f"(Linformer: only kernel={-(-num_tokens // num_keys)}), or ProjectedKeys() for a "
                "dense layer."
            )
        return groups

    @staticmethod
    def _named(texts: list[str], sequence: list[int | None]) -> Tokens:
        # Each key is a separate word, so that `AttentionRecord.merge_words` does not merge keys.
        made = Tokens.of(texts, sequence=sequence, words=range(len(texts)))
        return replace(made, text=tuple(texts))


def as_tokens(tokens: Sequence[str] | Tokens, sentence_b_start: int | None = None) -> Tokens:
    """Convert strings to `Tokens`. Strings that are vocabulary entries are decoded.

    `guess_alphabet` determines how the strings are encoded, if at all. If `tokens` is already a
    `Tokens`, its texts are not changed. `sentence_b_start` is the position of the first token of
    the second text of a pair. If it is not None, `Tokens.sequence` is set accordingly.
    """
    if isinstance(tokens, Tokens):
        display_tokens = tokens
    else:
        entries = token_strings(tokens)
        texts = display_texts(entries, alphabet=guess_alphabet(entries))
        display_tokens = replace(Tokens.of(entries), text=tuple(texts))
    if sentence_b_start is None:
        return display_tokens
    start = whole_number("sentence_b_start", sentence_b_start, 1, len(display_tokens) - 1)
    sequence = tuple(
        None if special else int(position >= start)
        for position, special in enumerate(display_tokens.special)
    )
    return replace(display_tokens, sequence=sequence)


def as_key_tokens(
    tokens: Sequence[str] | Tokens | ProjectedKeys, queries: Tokens, num_keys: int
) -> tuple[Tokens, list[str]]:
    """Convert the argument `key_tokens` to tokens, and return notes that views must show.

    `tokens` is this argument. If it is a `ProjectedKeys`, each of the `num_keys` keys combines some
    of the tokens `queries`, and the result has one token per key. Otherwise, `queries` and
    `num_keys` are not used, and the list of notes is empty.
    """
    if isinstance(tokens, ProjectedKeys):
        return tokens.tokens(queries, num_keys), tokens.notes(num_keys)
    return as_tokens(tokens), []


def tokens_from_positions(count: int, start: int = 0) -> Tokens:
    """Return `count` tokens whose texts are their positions, from `start`.

    They are used if the caller passes no tokens.

    >>> tokens_from_positions(3).text
    ('[0]', '[1]', '[2]')
    """
    return Tokens.of([f"[{position}]" for position in range(start, start + count)])
