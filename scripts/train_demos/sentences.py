"""Sentences with a predictable word, and random sequences that repeat.

There are two kinds of sentences:

- "the animal did not cross the street because it was too wide so the street ...". An adjective
  shows which of two nouns "it" means. The predictable word repeats this noun, the antecedent.
- "when mary and john went to the shop john gave a drink to mary". The predictable word repeats the
  name of the person who does not give. This is the indirect-object task of Wang et al. 2022 (arXiv
  2211.00593).

A fifth of the pairs of nouns and a fifth of the pairs of names are held out: training sentences do
not contain these pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train_demos.vocabulary import (
    ADJECTIVES,
    CREATURES,
    FATES,
    GIFTS,
    NAMES,
    OUTINGS,
    PLACES,
    THINGS,
    VENUES,
)

# One pair in this number of pairs is held out. The pair of "animal" and "street" is held out,
# because these are the first words of their lists.
_HELD_OUT_EVERY = 5

_NOUNS = {"creature": CREATURES, "place": PLACES, "thing": THINGS}
_OPENINGS = ("", "in the morning", "in the evening", "on monday", "on friday", "at night")


@dataclass(frozen=True)
class Sentence:
    """Sentence whose word at `answer` follows from the words before it.

    Attributes
    ----------
    words : tuple of str
        All words, with the full stop.
    answer : int
        Index in `words` of the predictable word.
    source : int
        Index in `words` of the first occurrence of the predictable word.
    distractor : int
        Index in `words` of the other noun or name, which would be the wrong answer.
    """

    words: tuple[str, ...]
    answer: int
    source: int
    distractor: int

    @property
    def prompt(self) -> str:
        """Return the words before the predictable word as one text."""
        return " ".join(self.words[: self.answer])


def _pair(
    generator: np.random.Generator,
    first: tuple[str, ...],
    second: tuple[str, ...],
    *,
    held_out: bool,
) -> tuple[str, str]:
    while True:
        i, j = int(generator.integers(len(first))), int(generator.integers(len(second)))
        if first[i] != second[j] and ((i + j) % _HELD_OUT_EVERY == 0) == held_out:
            return first[i], second[j]


def _choice(generator: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(generator.integers(len(options)))]


def antecedent_sentence(generator: np.random.Generator, *, held_out: bool) -> Sentence:
    """Make a sentence such as "the animal did not cross the street because it was too wide ...".

    Examples
    --------
    >>> made = antecedent_sentence(np.random.default_rng(0), held_out=True)
    >>> made.words[made.answer] == made.words[made.source]
    True
    """
    other = _choice(generator, ("place", "thing"))
    creature, noun = _pair(generator, CREATURES, _NOUNS[other], held_out=held_out)
    kind = _choice(generator, ("creature", other))
    answer, distractor = (creature, noun) if kind == "creature" else (noun, creature)
    opening = _choice(generator, _OPENINGS).split()
    before = [*opening, "the", creature, "did", "not", _choice(generator, OUTINGS[other])]
    before += ["the", noun, _choice(generator, ("because", "since")), "it", "was", "too"]
    before += [_choice(generator, ADJECTIVES[kind]), "so", "the"]
    words = (*before, answer, *_choice(generator, FATES[kind]).split(), ".")
    return Sentence(words, len(before), words.index(answer), words.index(distractor))


def recipient_sentence(generator: np.random.Generator, *, held_out: bool) -> Sentence:
    """Make a sentence such as "when mary and john went to the shop john gave a drink to mary .".

    Examples
    --------
    >>> made = recipient_sentence(np.random.default_rng(0), held_out=True)
    >>> made.words[made.answer] == made.words[made.source]
    True
    """
    first, second = _pair(generator, NAMES, NAMES, held_out=held_out)
    giver, recipient = (first, second) if generator.random() < 0.5 else (second, first)
    going = _choice(generator, ("went to", "were at")).split()
    before = [_choice(generator, ("when", "after", "while")), first, "and", second, *going]
    before += ["the", _choice(generator, VENUES), giver]
    before += [_choice(generator, ("gave", "handed", "offered", "sent")), "a"]
    before += [_choice(generator, GIFTS), "to"]
    words = (*before, recipient, ".")
    return Sentence(words, len(before), words.index(recipient), words.index(giver))


def repeated_halves(
    generator: np.random.Generator, tokens: NDArray[np.int64], *, rows: int, length: int
) -> NDArray[np.int64]:
    """Draw `length` different tokens and repeat them once, row by row.

    Parameters
    ----------
    generator : numpy.random.Generator
        Source of random numbers.
    tokens : ndarray of int64, (n,)
        Ids to draw from, without replacement within a row.
    rows, length : int
        Number of rows, and number of tokens before the repetition, at most n.

    Returns
    -------
    ndarray of int64, (rows, 2 * length)

    Examples
    --------
    >>> repeated_halves(np.random.default_rng(0), np.arange(9), rows=1, length=3).shape
    (1, 6)
    """
    half = generator.permuted(np.tile(tokens, (rows, 1)), axis=1)[:, :length]
    return np.concatenate([half, half], axis=1)


def repeated_bigrams(
    generator: np.random.Generator, tokens: NDArray[np.int64], *, rows: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return rows of pairs of tokens. Each pair occurs twice in its row, in random order.

    Parameters
    ----------
    generator : numpy.random.Generator
        Source of random numbers.
    tokens : ndarray of int64, (n,)
        Ids to draw from, without replacement within a row.
    rows, length : int
        Number of rows, and number of tokens in a row, a multiple of 4.

    Returns
    -------
    rows : ndarray of int64, (rows, length)
    decided : ndarray of bool, (rows, length)
        True for tokens that are predictable: the second token of a pair that has occurred before.

    Examples
    --------
    >>> made, decided = repeated_bigrams(np.random.default_rng(0), np.arange(9), rows=1, length=8)
    >>> made.shape, int(decided.sum())
    ((1, 8), 2)
    """
    num_pairs = length // 4
    drawn = generator.permuted(np.tile(tokens, (rows, 1)), axis=1)[:, : 2 * num_pairs]
    pairs = drawn.reshape(rows, num_pairs, 2)
    order = generator.permuted(np.tile(np.arange(2 * num_pairs) % num_pairs, (rows, 1)), axis=1)
    shown = np.take_along_axis(pairs, order[:, :, None], axis=1)
    earlier = np.tril(order[:, :, None] == order[:, None, :], -1).any(axis=2)
    decided = np.zeros((rows, 2 * num_pairs, 2), dtype=bool)
    decided[:, :, 1] = earlier
    return shown.reshape(rows, -1), decided.reshape(rows, -1)
