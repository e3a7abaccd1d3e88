"""What a change of the attention does to the model's answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.text import token_texts
from attnviz.record.tokens import Candidate, quoted
from attnviz.utils.arguments import short_repr

__all__ = ["Answer", "Effect", "answer_of", "effect_of", "measured", "share_of"]

_CANDIDATES = 5


@dataclass(frozen=True)
class Effect:
    """What a change of the attention does to the model's answer.

    Attributes
    ----------
    measure : str
        What `before` and `after` are, in words: a difference of logits, or the cosine similarity of
        the last hidden states with the unchanged ones, where the model has no logits.
    before, after : float
        Of the unchanged and of the changed run.
    noise : float
        How far `before` moves where the outputs that the change touches are computed again with the
        same weights. A smaller effect says nothing.
    divergence : float or None
        Kullback-Leibler divergence of the changed distribution from the unchanged one, in nats:
        the sum of p log(p / q), p unchanged. None without logits.
    likeliest_before, likeliest_after : tuple of Candidate
        The five likeliest tokens or classes; empty without logits.
    text_before, text_after : str or None
        With ``generate=`` the text that the unchanged and the changed model produce.

    Examples
    --------
    >>> effect = Effect("logit of “a” minus logit of “b”", 2.0, 0.5, 0.0, 0.3, (), ())
    >>> effect.change
    -1.5
    """

    measure: str
    before: float
    after: float
    noise: float
    divergence: float | None
    likeliest_before: tuple[Candidate, ...]
    likeliest_after: tuple[Candidate, ...]
    text_before: str | None = None
    text_after: str | None = None

    @property
    def change(self) -> float:
        """`after` minus `before`."""
        return self.after - self.before

    def __str__(self) -> str:
        said = f"{self.measure}: {self.before:.4g} before, {self.after:.4g} after"
        return self._compared(said) + self._texts()

    def _texts(self) -> str:
        """What the two models produce, in words."""
        if self.text_after is None:
            return ""
        rest = "as before"
        if self.text_before != self.text_after:
            rest = f"instead of {quoted(self.text_before or '', longest=400)}"
        return f"; the model produces {quoted(self.text_after, longest=400)} {rest}"

    def _compared(self, said: str) -> str:
        if abs(self.change) <= self.noise:
            return f"{said}; no more than noise ({self.noise:.2g})"
        if self.likeliest_before and self.likeliest_after:
            one, other = self.likeliest_before[0], self.likeliest_after[0]
            if one.id == other.id:
                said += f"; the likeliest stays {quoted(one.text)}"
            else:
                said += (
                    f"; the likeliest becomes {quoted(other.text)} instead of {quoted(one.text)}"
                )
        return f"{said} (noise {self.noise:.2g})"


@dataclass(frozen=True)
class Answer:
    """What of a model's output is looked at.

    Attributes
    ----------
    position : int or None
        From the end of the logits, which are those of the last tokens; None where there is one row.
    ids : tuple of int or None
        The answer and the other; None without logits.
    measure : str
        What is measured, in words.
    """

    position: int | None
    ids: tuple[int, int] | None
    measure: str

    def value(self, row: torch.Tensor) -> float:
        """The measure of a row of logits, float64."""
        if self.ids is None:
            raise TypeError("a model without logits has no measure of its own")
        return float(row[self.ids[0]] - row[self.ids[1]])


def _row(outputs: Any, position: int | None, example: int = 0) -> torch.Tensor | None:
    """Logits of the answer, float64 on the CPU; None where the model has none."""
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.dim() not in (2, 3):
        return None
    row = logits[example]
    if logits.dim() == 3:
        row = row[-1 if position is None else position]
    return row.detach().double().cpu()


def measured(answer: Answer, outputs: Any, before: Any, example: int = 0) -> float:
    """The measure of one example of a batch; `before` are the outputs of the unchanged run."""
    row = _row(outputs, answer.position, example)
    if answer.ids is None or row is None:
        return _cosine(_hidden(before), _hidden(outputs, example))
    return answer.value(row)


def share_of(answer: Answer, outputs: Any, token: int) -> float:
    """The probability of a token or a class; NaN without logits."""
    row = _row(outputs, answer.position)
    return math.nan if row is None else float(torch.softmax(row, dim=-1)[token])


def answer_of(
    model: Any,
    outputs: Any,
    tokenizer: Any,
    wanted: Any,
    *,
    position: int | None,
    after: str,
    changed: Any = None,
) -> Answer:
    """Return what is measured: `wanted`, or the default if it is None.

    The default is the likeliest token of `outputs` minus the likeliest other token of `changed`,
    the outputs of the changed run. It is below 0 exactly if the change makes another token win.
    Without `changed`, as for effects of many changes, both are the likeliest of `outputs`.

    `position` is that of the row, from the end, and `after` the token that stands there.
    """
    row = _row(outputs, position)
    if row is None:
        if wanted is not None:
            raise ValueError(
                f"answer={short_repr(wanted)}: {type(model).__name__} has no logits; leave answer "
                "out "
                "to measure its hidden states, or load it with its head"
            )
        return Answer(None, None, "cosine similarity of the last hidden states, over all tokens")
    if not bool(torch.isfinite(row).any()) or bool(torch.isnan(row).any()):
        raise ValueError("model: its logits are NaN; look at its weights and its precision")
    best = row.topk(2).indices.tolist()
    classes = getattr(outputs, "logits", row).dim() == 2
    if wanted is None:
        ids = (best[0], _likeliest_other(_row(changed, position), best))
    else:
        pair = wanted if isinstance(wanted, tuple | list) else [wanted]
        if len(pair) not in (1, 2):
            raise ValueError(
                f"answer={short_repr(wanted)} must be one token, or a pair (answer, other)"
            )
        read = [_id_of(each, model, tokenizer, len(row), classes=classes) for each in pair]
        other = read[1] if len(read) == 2 else next(each for each in best if each != read[0])
        ids = (read[0], other)
        if ids[0] == ids[1]:
            raise ValueError(f"answer={short_repr(wanted)}: answer and other are the same")
    names = _texts(ids, model, tokenizer, classes=classes)
    place = "" if classes else f" after {quoted(after)}"
    measure = f"logit of {quoted(names[0])} minus logit of {quoted(names[1])}{place}"
    return Answer(None if classes else position, ids, measure)


def _likeliest_other(row: torch.Tensor | None, best: list[int]) -> int:
    """The likeliest of a row but for the first of `best`; the second of `best` without a row."""
    if row is None:
        return best[1]
    first, second = row.topk(2).indices.tolist()
    return int(second if first == best[0] else first)


def _id_of(wanted: Any, model: Any, tokenizer: Any, count: int, *, classes: bool) -> int:
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise TypeError(
            f"answer={short_repr(wanted)} must be a token or class: its text or its number"
        )
    if isinstance(wanted, int):
        if not 0 <= wanted < count:
            kind = "classes" if classes else "tokens of the vocabulary"
            raise ValueError(
                f"answer={wanted}: there are {kind} 0 to {count - 1}; give one of these, or a text"
            )
        return wanted
    if classes:
        known = getattr(model.config, "label2id", None) or {}
        if wanted not in known:
            raise ValueError(
                f"answer={wanted!r}: the model's classes are {', '.join(map(repr, known))}"
            )
        return int(known[wanted])
    if tokenizer is None:
        raise ValueError(f"answer={wanted!r}: give tokenizer=, or the number of the token")
    ids = call_reader(tokenizer, wanted, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(
            f"answer={wanted!r} is {len(ids)} tokens here ({token_texts(ids, tokenizer)}); give "
            "one token, often with a space before it, or its number"
        )
    if ids[0] == getattr(tokenizer, "unk_token_id", None) and wanted != tokenizer.unk_token:
        raise ValueError(
            f"answer={wanted!r} is not in the vocabulary: the tokenizer reads it as "
            f"{tokenizer.unk_token!r}; give a token of the vocabulary, or its number"
        )
    return int(ids[0])


def _texts(ids: Any, model: Any, tokenizer: Any, *, classes: bool) -> list[str]:
    if classes:
        labels = getattr(model.config, "id2label", None) or {}
        return [str(labels.get(each, f"class {each}")) for each in ids]
    return [text.strip("·") or text for text in token_texts(list(ids), tokenizer)]


def _candidates(
    row: torch.Tensor, model: Any, tokenizer: Any, *, classes: bool
) -> tuple[Candidate, ...]:
    best, ids = torch.softmax(row, dim=-1).topk(min(_CANDIDATES, len(row)))
    texts = _texts(ids.tolist(), model, tokenizer, classes=classes)
    return tuple(map(Candidate, texts, ids.tolist(), best.tolist()))


def effect_of(
    answer: Answer, model: Any, tokenizer: Any, *, before: Any, after: Any, identity: Any
) -> Effect:
    """Compare the outputs of three runs: unchanged, changed, and touched without a change."""
    if answer.ids is None:
        hidden = [_hidden(each) for each in (before, after, identity)]
        changed, same = (_cosine(hidden[0], each) for each in hidden[1:])
        return Effect(answer.measure, 1.0, changed, abs(1.0 - same), None, (), ())
    rows = [_row(each, answer.position) for each in (before, after, identity)]
    one, other, same_row = (row for row in rows if row is not None)
    classes = answer.position is None
    logs = [torch.log_softmax(row, dim=-1) for row in (one, other)]
    shares = logs[0].exp()
    # Where the unchanged run says never, nothing is added.
    divergence = float(torch.where(shares > 0, shares * (logs[0] - logs[1]), 0.0).sum())
    return Effect(
        answer.measure,
        answer.value(one),
        answer.value(other),
        abs(answer.value(same_row) - answer.value(one)),
        max(0.0, divergence),
        _candidates(one, model, tokenizer, classes=classes),
        _candidates(other, model, tokenizer, classes=classes),
    )


def _hidden(outputs: Any, example: int = 0) -> torch.Tensor:
    for name in ("last_hidden_state", "hidden_states", "image_embeds", "logits"):
        found = getattr(outputs, name, None)
        if isinstance(found, torch.Tensor):
            return found[example].detach().double().flatten().cpu()
    raise NotImplementedError(
        f"model: its output ({type(outputs).__name__}) has neither logits nor a last hidden state, "
        "so that no effect can be measured"
    )


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))
