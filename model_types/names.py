"""Check of the names of tokens: what a view shows for each token of a text.

Each kind of tokenizer (see `model_types.tokenizer_kinds`) reads several texts, and the names in the
record are compared with the texts by rules that do not depend on the code that makes names:

text        the names, joined, are the text; or, if the tokenizer changes the text (Moses, jieba),
            what its own `decode` returns
spaces      a name begins with a space if the entry does, and the joined names are the text with its
            spaces if the tokenizer's own `decode` returns the text exactly
words       no word has white space inside, and a word ends only at white space or where the
            tokenizer itself splits
special     exactly the tokens that the tokenizer added to the text are special
notes       a note says that names differ from the text, exactly if they do
ids         names of the same ids without a text (as for generated tokens) pass the first rule

PYTHONPATH=src:tests python -m model_types.names         print a table of what fails
PYTHONPATH=src:tests python -m model_types.names BertTokenizer    show the names of one kind
"""

from __future__ import annotations

import re
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import transformers

from model_types.tokenizer_kinds import tokenizer_kinds

TEXTS: dict[str, str | tuple[str, str]] = {
    "sentence": "The animal didn't cross the street.",
    "accents": "The naïve café: déjà vu",
    "Chinese and Japanese": "日本語 and 中文。 ok",
    "line breaks": "cat\ndog\n\nhouse\tin",
    "spaces": "two  spaces and   three ",
    "emoji": "ok 🙂 👍🏽 yes",
    "code": "  x = [1, 2]; print(a_b)",
    "punctuation": "Hello, world! (yes?) 3.14",
    "pair": ("the cat sat", "on the mat"),
    "one word": "cats",
}
RULES = ("text", "spaces", "words", "special", "notes", "ids")


@dataclass
class NamesRow:
    """Result of one kind of tokenizer: what failed, by rule and text, or the error."""

    kind: str
    failed: dict[str, list[str]] = field(default_factory=dict)
    error: str = ""
    texts: int = 0


def _plain(text: str) -> str:
    """Return a text without case, accents and white space, one character after the other."""
    text = unicodedata.normalize("NFKD", text)
    text = "".join(
        character
        for character in text
        if not unicodedata.combining(character)
        and not character.isspace()
        and character not in "▁\u200d\ufe0f"
    )
    return unicodedata.normalize("NFKD", text.casefold())


def _unmarked(name: str, *, pieces: bool) -> str:
    """Return the text that a name stands for, apart from divided characters."""
    if pieces and name.startswith("##") and len(name) > 2:
        name = name[2:]
    name = re.sub("‹U[+]([0-9A-F]+)›", lambda code: chr(int(code[1], 16)), name)
    marks = {"·": " ", "⏎": "\n", "⇥": "\t", "␍": "\r"}
    return "" if name == "∅" else "".join(marks.get(character, character) for character in name)


_PART = re.compile(r"(\S) (\d)/(\d) ?")


def _joined(names: Sequence[str], *, pieces: bool) -> str:
    """Join names. A character that is divided over several tokens is counted once."""
    parts = []
    for name in names:
        # "é 1/2" begins a character, and "é 2/2" is the rest of the character before.
        whole = _PART.sub(lambda part: part[1] if part[2] == "1" else "", name)
        parts.append(_unmarked(whole, pieces=pieces))
    return "".join(parts)


def _record_tokens(tokenizer: Any, text: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the tokens of the record, and its notes."""
    from attnviz import extract

    size = max(len(tokenizer), tokenizer.vocab_size, *_largest_ids(tokenizer, text)) + 2
    model = _model(size, tables=type(tokenizer).__name__ == "TapasTokenizer")
    if reads_documents(tokenizer):
        parts = (text,) if isinstance(text, str) else text
        text = _encoded(tokenizer, *parts, return_tensors="pt")
        del text["bbox"]
    record = extract(model, text, tokenizer=tokenizer)
    return record.stack().query_tokens, tuple(record.notes)


def _largest_ids(tokenizer: Any, text: Any) -> list[int]:
    parts = (text,) if isinstance(text, str) else text
    return [0, *_ids(tokenizer, *parts)]


def _ids(tokenizer: Any, *parts: str) -> list[int]:
    ids = _encoded(tokenizer, *parts)["input_ids"]
    return list(ids[0] if ids and isinstance(ids[0], list) else ids)


def _encoded(tokenizer: Any, *parts: str, **options: Any) -> Any:
    """Return the output of a tokenizer. Those for documents get words with their boxes."""
    if not reads_documents(tokenizer):
        return tokenizer(*parts, **options)
    document = parts[-1].split()
    return tokenizer(*parts[:-1], document, boxes=[[0, 0, 9, 9]] * len(document), **options)


def reads_documents(tokenizer: Any) -> bool:
    """Whether a tokenizer reads the words of a document, each with its box on the page."""
    return hasattr(tokenizer, "only_label_first_subword") and hasattr(tokenizer, "sep_token_box")


_models: dict[tuple[int, bool], Any] = {}


def _model(size: int, *, tables: bool) -> Any:
    """Return a tiny model with a vocabulary of `size`. `tables` is whether it reads tables."""
    size = 1 << size.bit_length()
    key = (size, tables)
    if tables and key not in _models:
        config = transformers.TapasConfig(
            vocab_size=size,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
        )
        _models[key] = transformers.TapasModel(config).eval()
    if key not in _models:
        _models[key] = transformers.GPT2Model(
            transformers.GPT2Config(
                vocab_size=size, n_embd=4, n_layer=1, n_head=1, n_positions=512, n_inner=4
            )
        ).eval()
    return _models[key]


def check_kind(tokenizer: Any, text: Any) -> Iterator[tuple[str, str]]:
    """Yield each rule that fails for a text, with the reason."""
    from attnviz.extraction.tokens.text import read_tokens

    parts = (text,) if isinstance(text, str) else text
    ids = _ids(tokenizer, *parts)
    tokens, notes = _record_tokens(tokenizer, text)
    if tokens.ids is not None and list(tokens.ids) != ids:
        yield "text", "the record has other ids"
        return
    yield from _check_text(tokenizer, ids, tokens, parts, "text")
    yield from _check_spaces(tokenizer, ids, tokens, parts)
    yield from _check_words(tokenizer, ids, tokens, parts)
    yield from _check_special(tokenizer, ids, tokens)
    is_text = _matches(_regular(tokens, tokenizer.unk_token), "".join(parts))
    differs = [note for note in notes if "does not read the text" in note]
    if is_text == bool(differs):
        yield "notes", f"{list(tokens.text)}: {notes}"
    alone, _ = read_tokens(ids, tokenizer=tokenizer)
    yield from _check_text(tokenizer, ids, alone, parts, "ids")


def _regular(tokens: Any, unknown: str | None) -> list[str | None]:
    """Return the names of tokens that are not special, and None for unknown words."""
    return [
        None if name in (unknown, "<unk>", "[UNK]") else name
        for name, special in zip(tokens.text, tokens.special, strict=True)
        if not special or name == unknown
    ]


def _matches(names: Sequence[str | None], text: str) -> bool:
    pieces = any(name is not None and name.startswith("##") for name in names)
    runs: list[list[str]] = [[]]
    for name in names:
        if name is None:
            runs.append([])
        else:
            runs[-1].append(name)
    pattern = ".*?".join(re.escape(_plain(_joined(run, pieces=pieces))) for run in runs)
    return re.fullmatch(pattern, _plain(text), re.DOTALL) is not None


def _check_text(
    tokenizer: Any, ids: Sequence[int], tokens: Any, parts: Sequence[str], rule: str
) -> Iterator[tuple[str, str]]:
    names = _regular(tokens, tokenizer.unk_token)
    own = [i for i, special in zip(ids, tokens.special, strict=True) if not special]
    # A tokenizer that changes a text returns the changed text.
    decoded = tokenizer.decode(own, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if not _matches(names, "".join(parts)) and not (
        _plain(decoded) != _plain("".join(parts)) and _matches(names, decoded)
    ):
        yield rule, f"{''.join(parts)!r}: {list(tokens.text)}"


def _check_spaces(
    tokenizer: Any, ids: Sequence[int], tokens: Any, parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    entries = tokenizer.convert_ids_to_tokens(list(ids))
    if tokenizer.convert_tokens_to_ids(entries) != list(ids):
        # A tokenizer with two vocabularies converts ids by that of the target.
        entries = []
    for entry, name, special in zip(entries, tokens.text, tokens.special, strict=False):
        if entry[:1] in "▁Ġ" and not special and not name.startswith("·"):
            yield "spaces", f"{entry!r} is named {name!r}"
    if len(parts) > 1 or not any(not special for special in tokens.special):
        return
    own = [i for i, special in zip(ids, tokens.special, strict=True) if not special]
    decoded = tokenizer.decode(own, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if decoded.strip(" ") != parts[0].strip(" "):
        return
    names = [name or "" for name in _regular(tokens, None)]
    if not any("·" in name for name in names):
        # In WordPiece, for example, no token has the spaces between words, which `decode` adds.
        return
    if _joined(names, pieces=False).strip(" ") != parts[0].strip(" "):
        yield "spaces", f"{parts[0]!r}: {list(tokens.text)}"


def _check_words(
    tokenizer: Any, ids: Sequence[int], tokens: Any, parts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    names = _regular(tokens, tokenizer.unk_token)
    text = "".join(parts)
    pieces = any(name is not None and name.startswith("##") for name in names)
    joined = [_plain(_joined([name], pieces=pieces)) if name else "" for name in names]
    whole = "".join(joined)
    if None in names or whole != _plain(text):
        return
    if tokens.words is None:
        yield "words", f"{text!r}: unknown {list(tokens.text)}"
        return
    # The run of characters between white space to which each character of `whole` belongs.
    runs: list[int] = []
    run = 0
    for part in parts:
        for chunk in re.split(r"(\s+)", part):
            if chunk.isspace() or not chunk:
                run += 1
            runs += [run] * len(_plain(chunk))
        run += 1
    words = [w for w, special in zip(tokens.words, tokens.special, strict=True) if not special]
    position = 0
    first: dict[int, int] = {}
    last_run: int | None = None
    last_word: int | None = None
    own = _own_words(tokenizer, parts, tokens)
    for index, (piece, word) in enumerate(zip(joined, words, strict=True)):
        covered = sorted(set(runs[position : position + len(piece)]))
        position += len(piece)
        if not covered:
            continue
        if word is None:
            yield "words", f"{text!r}: no word {list(tokens.text)}"
            return
        if len(covered) > 1:
            # The token itself contains white space.
            first[word] = covered[-1]
        elif first.setdefault(word, covered[0]) != covered[0]:
            yield "words", f"{text!r}: white space in a word {_pairs(tokens)}"
            return
        if covered[0] == last_run and word != last_word and not own(index, joined):
            yield "words", f"{text!r}: a word is cut {_pairs(tokens)}"
            return
        last_run, last_word = covered[-1], word


def _pairs(tokens: Any) -> list[tuple[str, int | None]]:
    return list(zip(tokens.text, tokens.words, strict=True))


def _own_words(tokenizer: Any, parts: Sequence[str], tokens: Any) -> Any:
    """Return a function: whether the tokenizer itself splits a text before the given token."""
    regular = [i for i, special in enumerate(tokens.special) if not special]
    encoded = _encoded(tokenizer, *parts)
    if getattr(encoded, "encodings", None):
        words = encoded.encodings[0].word_ids

        def differs(index: int, joined: Sequence[str]) -> bool:
            del joined
            return index > 0 and words[regular[index]] != words[regular[index - 1]]

        return differs

    # A tokenizer written in Python does not tell its words. It may split at punctuation, and
    # between characters of Chinese.
    def is_split(index: int, joined: Sequence[str]) -> bool:
        before = next((piece for piece in reversed(joined[:index]) if piece), "")
        around = (before[-1:], joined[index][:1])
        return any(
            not character.isalnum() or unicodedata.category(character) == "Lo"
            for character in around
        )

    return is_split


def _check_special(tokenizer: Any, ids: Sequence[int], tokens: Any) -> Iterator[tuple[str, str]]:
    known = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for name, identifier, special in zip(tokens.text, ids, tokens.special, strict=True):
        if identifier in known and not special:
            yield "special", f"{name!r} is not special"
        if special and name in ("∅", ""):
            yield "special", f"{identifier} has no name"


def sweep(kinds: Sequence[str] = ()) -> Iterator[NamesRow]:
    """Yield the result of each kind of tokenizer."""
    for kind, build in tokenizer_kinds():
        if kinds and kind not in kinds:
            continue
        row = NamesRow(kind)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tokenizer = build()
                _encoded(tokenizer, "the cat")
        except Exception as error:  # noqa: BLE001 - a package is missing, or it reads no plain text
            row.error = f"not built: {type(error).__name__}: {error}".splitlines()[0][:100]
            yield row
            continue
        for name, text in TEXTS.items():
            try:
                own = _encoded(tokenizer, *((text,) if isinstance(text, str) else text))
            except Exception:  # noqa: BLE001, S112 - the tokenizer itself refuses this text
                continue
            if not own["input_ids"]:
                continue
            row.texts += 1
            try:
                for rule, reason in check_kind(tokenizer, text):
                    row.failed.setdefault(rule, []).append(f"{name}: {reason}")
            except Exception as error:  # noqa: BLE001 - an error of attnviz is a result
                row.failed.setdefault("text", []).append(f"{name}: {type(error).__name__}: {error}")
        yield row


def names_section(rows: Sequence[NamesRow]) -> str:
    """Return the section "Names of tokens" of docs/coverage.md for the rows of `sweep`.

    The section has the number of kinds of tokenizers whose names pass every rule, a line for each
    kind with a failure, and the kinds that could not be built.
    """
    built = [row for row in rows if not row.error]
    right = [row for row in built if not row.failed]
    counts = Counter(rule for row in built for rule in row.failed)
    lines = [
        "## Names of tokens",
        "",
        f"**{len(right)} of {len(built)}** kinds of tokenizers have right names in "
        f"{sum(row.texts for row in built)} texts.",
        "",
        "| Rule | Kinds that fail |",
        "| --- | --- |",
        *(f"| {rule} | {counts[rule]} |" for rule in RULES),
    ]
    wrong = [row for row in built if row.failed]
    if wrong:
        lines += ["", *(f"- `{row.kind}`: {', '.join(sorted(row.failed))}" for row in wrong)]
    missing = [row.kind for row in rows if row.error]
    if missing:
        lines += ["", "Not built here: " + ", ".join(f"`{kind}`" for kind in missing) + "."]
    return "\n".join(lines) + "\n"


def main(kinds: Sequence[str]) -> None:
    """Print the section, and all reasons."""
    transformers.logging.set_verbosity_error()
    rows = list(sweep(kinds))
    for row in rows:
        if row.error:
            print(f"{row.kind}: {row.error}")  # noqa: T201
        for rule, reasons in row.failed.items():
            for reason in reasons[:2] if not kinds else reasons:
                print(f"{row.kind} [{rule}] {reason}"[:400])  # noqa: T201
    print(names_section(rows))  # noqa: T201
    if any(row.failed for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
