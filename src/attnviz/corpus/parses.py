"""Query-key pairs of the relations in a dependency parse.

In a dependency parse, each word except the root depends on another word, its head. The dependency
has a relation, such as "nsubj" for a subject and its verb. In this module, a head is never an
attention head.
"""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnviz.corpus.measuring import Relations
from attnviz.corpus.roles import REVERSED, SYNTACTIC
from attnviz.record.token_kinds import words_of
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

_FORMS = (
    "(heads, relations) or (words, heads, relations), lists with an entry for each word, or a "
    "mapping with these names"
)
# A parse has the index of the head of each word. The root has no head, and has this number or None
# in its place. The number is not 0, because the first word has the index 0.
_ROOT = -1


def pairs_of_relations(parse: Any, tokens: Tokens) -> Relations:
    """Return, for each relation of a parse, the query and key positions of its query-key pairs.

    `parse` is ``(heads, relations)`` or ``(words, heads, relations)``, or a mapping with these
    keys. The result has two entries for each relation. One has a name such as "syntactic: nsubj".
    Its queries are tokens of the dependent word, and its keys are tokens of the head. The other has
    a name such as "syntactic: nsubj (reversed)", and its queries and keys are swapped. The relation
    of the root is ignored, because the root depends on no word. Raise TypeError or ValueError if
    `parse` is invalid or its words do not match `tokens`.

    >>> tokens = Tokens.of(["the", " cat", " sat"])
    >>> pairs = pairs_of_relations(([1, 2, -1], ["det", "nsubj", "root"]), tokens)
    >>> pairs["syntactic: nsubj"]
    (array([1]), array([2]))
    """
    words, heads, relations = _read(parse)
    word_tokens = _tokens_of_words(words, len(heads), tokens)
    by_role: dict[str, tuple[list[int], list[int]]] = {}
    for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        if head == _ROOT:
            continue
        pairs = [(query, key) for query in word_tokens[word] for key in word_tokens[head]]
        name = f"{SYNTACTIC}{relation}"
        for role, step in ((name, 1), (f"{name}{REVERSED}", -1)):
            queries, keys = by_role.setdefault(role, ([], []))
            for pair in pairs:
                query, key = pair[::step]
                queries.append(query)
                keys.append(key)
    return {
        name: (np.array(queries, np.int64), np.array(keys, np.int64))
        for name, (queries, keys) in by_role.items()
    }


def _read(parse: Any) -> tuple[list[str] | None, list[int], list[str]]:
    """Return the words of a parse, the index of each word's head, and each word's relation.

    The words are None if the parse has only heads and relations. The index is `_ROOT` for the root.
    Raise TypeError or ValueError if `parse` is invalid.
    """
    if isinstance(parse, Mapping):
        parse = [parse.get(name) for name in ("words", "heads", "relations")]
    try:
        words, heads, relations = parse if len(parse) == 3 else (None, *parse)
        if words is not None:
            words = [str(word) for word in words]
        heads = [_ROOT if head is None else operator.index(head) for head in heads]
        relations = [str(relation) for relation in relations]
    except (TypeError, ValueError):
        raise TypeError(f"parse must be {_FORMS}, not {short_repr(parse)}") from None
    lengths = [len(part) for part in (heads, relations, words) if part is not None]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"parse: the lists of heads, relations and words have {lengths} entries. Pass one of "
            "each for every word."
        )
    for index, head in enumerate(heads):
        if not -1 <= head < len(heads):
            raise ValueError(
                f"parse: heads[{index}]={head} must be the index of a word, from 0 to "
                f"{len(heads) - 1}, or -1 for the root"
            )
    return words, heads, relations


def _tokens_of_words(words: Sequence[str] | None, count: int, tokens: Tokens) -> list[list[int]]:
    """Return, for each word of a parse, the positions of its tokens in the text.

    `words` has the words of the parse, or is None if the parse has none. In that case, use the
    words that `words_of` finds in `tokens`, and raise ValueError unless their number is `count`,
    the number of words of the parse. Otherwise find the words by their characters
    (`_by_characters`).
    """
    if words is not None:
        return _by_characters(words, tokens)
    word_tokens: dict[int, list[int]] = {}
    for position, number in enumerate(words_of(tokens).tolist()):
        if number != -1 and not tokens.special[position]:
            word_tokens.setdefault(number, []).append(position)
    if len(word_tokens) != count:
        raise ValueError(
            f"parse has {count} words, but the tokens of the text form {len(word_tokens)}. Pass "
            "the words too, (words, heads, relations)."
        )
    return [word_tokens[number] for number in sorted(word_tokens)]


def _by_characters(words: Sequence[str], tokens: Tokens) -> list[list[int]]:
    """Return, for each of `words`, the positions of the tokens with its characters.

    A token that has characters of several words belongs to each of these words. Special tokens
    belong to no word. Spaces, accents and case are ignored. Raise ValueError unless the words and
    the tokens have the same characters in the same order.
    """
    letters = "".join(_normalize(word) for word in words)
    owner = [number for number, word in enumerate(words) for _ in _normalize(word)]
    word_tokens: list[list[int]] = [[] for _ in words]
    start = 0
    for position, (text, special) in enumerate(zip(tokens.text, tokens.special, strict=True)):
        part = "" if special else _normalize(text.removeprefix("##"))
        if not letters.startswith(part, start):
            raise ValueError(
                f"parse: the words do not match the text. At token {position}, {text!r}, the words "
                f"continue with {letters[start : start + 12]!r}."
            )
        for number in sorted({owner[letter] for letter in range(start, start + len(part))}):
            word_tokens[number].append(position)
        start += len(part)
    if start < len(letters):
        raise ValueError(
            f"parse: the text ends, but the words continue with {letters[start : start + 12]!r}"
        )
    return word_tokens


def _normalize(text: str) -> str:
    """Convert `text` to lower case, and remove spaces, accents and the character "·".

    Then words match the tokens of a tokenizer that changes case, spaces or accents. The character
    "·" stands for a space in the text of a token.
    """
    decomposed = unicodedata.normalize("NFD", text.replace("·", "").lower())
    return "".join(
        character
        for character in decomposed
        if not character.isspace() and unicodedata.category(character) != "Mn"
    )
