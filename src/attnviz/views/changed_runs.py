"""Runs of a view's model with changed attention, and a cache of their results.

The results are effects on an answer, attention weights, and effects of single query-key pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from attnviz.record.difference import DifferenceAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate
from attnviz.server.description import describe_numbers
from attnviz.server.server import (
    AnswerToken,
    ChangedHeader,
    ChangedStack,
    Cut,
    EdgeHeader,
    EdgeRequest,
    OutcomeHeader,
    RequestedChange,
)
from attnviz.utils.numbers import format_change, format_small

if TYPE_CHECKING:
    from attnviz.interventions.changes import Change
    from attnviz.interventions.effect import Effect
    from attnviz.interventions.intervene import ChangedRecord
    from attnviz.interventions.repeated import Outcome, RepeatedInterventions

__all__ = ["ChangedRuns", "Measured", "ShownStacks", "change_of", "check_count"]

# Maximum number of changes in one run, and maximum number of cached effects. The cached effects are
# part of an exported page.
_MAX_CHANGES = 32
_MAX_OUTCOMES = 50
# Maximum number of runs whose weights are cached.
_MAX_RUNS = 2
# Maximum number of changes that the name of a stack lists one by one. The name for more changes
# states only their number.
_MAX_NAMED_CHANGES = 2
# Maximum number of characters of the changes in a name.
_MAX_NAME_LENGTH = 160


#: Answer that is measured: a function, or a tuple of one or two tokens or classes. An empty tuple
#: is the default answer of `attnviz.intervene`.
Measured = tuple[int | str, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class ShownStacks:
    """Stacks of a changed run, and their differences from the unchanged run.

    The keys are the names of the stacks in the unchanged run.
    """

    after: dict[str, AttentionStack]
    difference: dict[str, AttentionStack]


@dataclass(frozen=True)
class _Run:
    measured: Measured
    record: ChangedRecord
    shown: ShownStacks


@dataclass(frozen=True)
class _CachedEffect:
    changes: tuple[RequestedChange, ...]
    described: tuple[str, ...]
    sentence: str
    effect: Effect


class ChangedRuns:
    """Runs of a view's model with changed attention, and a cache of their results.

    Parameters
    ----------
    record : AttentionRecord
        Record of the unchanged run.
    source : tuple, optional
        Model, inputs, target and options of `attnviz.extract`. If None, the model cannot run.
    measured : tuple of int or str, or callable
        Trait `answer` of the view as a `Measured`. This answer is measured in each run for which
        the caller does not pass another answer.
    hint : str
        Sentence for error messages that explains how to create a view with a model.
    """

    def __init__(
        self,
        record: AttentionRecord,
        source: tuple[Any, Any, Any, Any] | None,
        measured: Measured,
        hint: str,
    ) -> None:
        self._record = record
        self._source = source
        self._hint = hint
        self._interventions: RepeatedInterventions | None = None
        self._outcomes: dict[str, _CachedEffect] = {}
        self._runs: dict[str, _Run] = {}
        self.measured = measured
        self._names: dict[str, str] = {}
        self._edges: dict[EdgeRequest, EdgeHeader] = {}

    def outcome(
        self, changes: tuple[RequestedChange, ...], measured: Measured | None = ()
    ) -> OutcomeHeader:
        """Compute the effect that all `changes` together have on an answer.

        `measured` determines the answer: a function of the model's output, or tokens whose logits
        are measured. None selects the answer of the view, and an empty tuple the default of
        `attnviz.intervene`.
        """
        measured = self.measured if measured is None else measured
        outcome = self._compute_outcome(changes, measured)
        effect = outcome.effect
        return {
            "sentence": outcome.sentence,
            "described": list(outcome.described),
            "effect": str(effect),
            "measure": effect.measure,
            "before": effect.before,
            "after": effect.after,
            "noise": effect.noise,
            "divergence": effect.divergence,
            "candidates_before": _answer_tokens(effect.candidates_before),
            "candidates_after": _answer_tokens(effect.candidates_after),
        }

    def check(self, measured: Measured) -> None:
        """Raise ValueError or TypeError if an answer cannot be measured.

        This may run the model.
        """
        self._get_interventions().check(measured)

    def _get_interventions(self) -> RepeatedInterventions:
        if self._source is None:
            raise ValueError(f"this view has no model that could run again. {self._hint}")
        if self._interventions is None:
            from attnviz.interventions.repeated import RepeatedInterventions

            model, inputs, target, options = self._source
            self._interventions = RepeatedInterventions(
                model, inputs, target=target, shown=self._record, **options
            )
        return self._interventions

    def _compute_outcome(self, changes: tuple[RequestedChange, ...], measured: Measured) -> Outcome:
        interventions = self._get_interventions()
        check_count(len(changes))
        made = [change_of(change) for change in changes]
        outcome: Outcome = interventions.outcome(made, measured or None)
        if changes:
            key = _key(changes)
            self._outcomes.pop(key, None)
            self._outcomes[key] = _CachedEffect(
                changes, outcome.described, outcome.sentence, outcome.effect
            )
            _drop_oldest(self._outcomes, _MAX_OUTCOMES)
            if outcome.record is not None:
                cached = self._runs.pop(key, None)
                shown = cached.shown if cached else self._shown_stacks(key, outcome)
                self._runs[key] = _Run(measured, outcome.record, shown)
                _drop_oldest(self._runs, _MAX_RUNS)
        return outcome

    def run(self, changes: tuple[RequestedChange, ...], measured: Measured | None = None) -> _Run:
        """Return the run with `changes` from the cache, or run the model.

        If `measured` is None, a cached run may have measured any answer. Otherwise it must have
        measured this answer. Raise MemoryError if the weights do not fit into memory.
        """
        key = _key(changes)
        cached = self._runs.get(key)
        if cached is None or measured not in (None, cached.measured):
            self._compute_outcome(changes, self.measured if measured is None else measured)
        if key not in self._runs:
            raise MemoryError(
                "the weights of the changed run do not fit into free memory. Its answer is "
                "available."
            )
        return self._runs[key]

    def changed(self, changes: tuple[RequestedChange, ...]) -> ChangedHeader:
        """Describe the stacks of the run with `changes` for the browser."""
        if not changes:
            raise ValueError("changes is empty. Pass at least one change.")
        run = self.run(changes)
        stacks = []
        for name, after in run.shown.after.items():
            tokens = run.record.stack(name).query_tokens
            numbers = describe_numbers(after)
            difference = describe_numbers(run.shown.difference[name])
            stacks.append(
                ChangedStack(
                    stack=name,
                    after=numbers,
                    difference=difference,
                    predictions=list(tokens.predictions),
                )
            )
        return ChangedHeader(stacks=stacks)

    def stack(self, name: str) -> AttentionStack | None:
        """Return a stack of a cached run, or a difference, by its unique name.

        Return None if no cached run has it.
        """
        for run in self._runs.values():
            for stacks in (run.shown.after, run.shown.difference):
                for stack in stacks.values():
                    if stack.name == name:
                        return stack
        return None

    def edge(self, pair: EdgeRequest) -> EdgeHeader:
        """Describe a query-key pair.

        The description contains two things. The norm share is the norm of the key's contribution to
        the query, as a share of the sum over all keys (see `RepeatedInterventions.norm_share`). The
        cuts are the cached effects of removing the pair. If the model has not run yet, the
        description contains neither.
        """
        interventions = self._get_interventions()
        if not interventions.ready:
            return EdgeHeader(model="waits", share=None, share_problem="", cuts=[], noise="")
        share, problem = None, ""
        try:
            share = interventions.norm_share(
                pair.stack, pair.layer, pair.head, pair.query, pair.key
            )
        except LookupError as error:
            problem = str(error.args[0])
        cuts, noise = self._describe_cuts(pair)
        header = EdgeHeader(
            model="ready", share=share, share_problem=problem, cuts=cuts, noise=noise
        )
        self._edges.pop(pair, None)
        self._edges[pair] = header
        _drop_oldest(self._edges, _MAX_OUTCOMES)
        return header

    def _describe_cuts(self, pair: EdgeRequest) -> tuple[list[Cut], str]:
        """Return the cached effects of removing a pair, in words, and their largest noise."""
        cuts: list[Cut] = []
        noise = 0.0
        for cached in self._outcomes.values():
            if len(cached.changes) != 1 or not _is_cut_of(cached.changes[0], pair):
                continue
            [change], effect = cached.changes, cached.effect
            when = "before" if change.renormalize else "after"
            where = "" if change.head is not None else f" in all heads of layer {change.layer}"
            where = " in all layers" if change.layer is None else where
            nothing = ", no more than the noise" if abs(effect.change) <= effect.noise else ""
            numbers = format_change(effect.before, effect.after)
            words = f"cut {when} the softmax{where} {numbers}{nothing}"
            cuts.append(Cut(description=words, measure=effect.measure))
            noise = max(noise, effect.noise)
        return cuts, format_small(noise) if cuts else ""

    def page_state(self) -> dict[str, Any]:
        """Return the cached results as entries of a page's state."""
        made: dict[str, Any] = {}
        if self._outcomes:
            made["outcomes"] = [
                {
                    "changes": [asdict(change) for change in cached.changes],
                    "described": list(cached.described),
                    "sentence": cached.sentence,
                }
                for cached in self._outcomes.values()
            ]
        if self._edges:
            edges = []
            for asked, header in self._edges.items():
                cuts, noise = self._describe_cuts(asked)
                edges.append({**asdict(asked), **header, "cuts": cuts, "noise": noise})
            made["known_edges"] = edges
        return made

    def _shown_stacks(self, key: str, outcome: Outcome) -> ShownStacks:
        """Return the stacks of a changed run and their differences, with unique names."""
        if outcome.record is None:
            raise TypeError("a run without a record has no stacks")
        words = self._unique_name(key, outcome.described)
        shown = ShownStacks({}, {})
        for name, before in self._record.stacks.items():
            if name not in outcome.record.stacks:
                continue
            changed = outcome.record.stack(name)
            layers = {
                number: changed.attention(number)
                for number in before.layers
                if number in changed.layers
            }
            own = None if changed.key_tokens is changed.query_tokens else changed.key_tokens
            shown.after[name] = AttentionStack(
                f"{name} · after: {words}",
                layers,
                changed.query_tokens,
                own,
                normalized=changed.normalized,
            )
            shown.difference[name] = AttentionStack(
                f"{name} · difference after: {words}",
                {
                    number: DifferenceAttention(before.attention(number), after)
                    for number, after in layers.items()
                },
                changed.query_tokens,
                own,
                signed=True,
                measure="difference",
            )
        return shown

    def _unique_name(self, key: str, described: Sequence[str]) -> str:
        """Return a short unique name for some changes.

        `key` identifies the changes, and `described` has one sentence for each change.
        """
        if key in self._names:
            return self._names[key]
        words = "; ".join(
            f"{description[0].lower()}{description[1:].rstrip('.')}" for description in described
        )
        if len(described) > _MAX_NAMED_CHANGES or len(words) > _MAX_NAME_LENGTH:
            words = f"{len(described)} changes" if len(described) > 1 else words[:_MAX_NAME_LENGTH]
        if words in self._names.values():
            number = 2
            while f"{words} ({number})" in self._names.values():
                number += 1
            words = f"{words} ({number})"
        self._names[key] = words
        return words


def check_count(count: int) -> None:
    """Raise ValueError if `count` changes are too many for one run."""
    if count > _MAX_CHANGES:
        raise ValueError(f"changes has {count} entries. Pass at most {_MAX_CHANGES}.")


def _key(changes: Iterable[RequestedChange]) -> str:
    return json.dumps([asdict(change) for change in changes])


def _drop_oldest(cache: dict[Any, Any], max_entries: int) -> None:
    """Remove the oldest entries of a dict until it has at most `max_entries`."""
    while len(cache) > max_entries:
        cache.pop(next(iter(cache)))


def _is_cut_of(change: RequestedChange, pair: EdgeRequest) -> bool:
    """Whether a change removes a query-key pair in the head of the pair.

    The change may remove the pair in other heads, too.
    """
    return (
        change.kind == "knockout"
        and (change.stack, change.query, change.key) == (pair.stack, pair.query, pair.key)
        and change.layer in (None, pair.layer)
        and change.head in (None, pair.head)
    )


def _answer_tokens(candidates: Iterable[Candidate]) -> list[AnswerToken]:
    return [
        AnswerToken(text=candidate.text, id=candidate.id, probability=candidate.probability)
        for candidate in candidates
    ]


def change_of(request: RequestedChange) -> Change:
    """Convert the request for a change to an `Ablate`, `HideTokens` or `Knockout`.

    Raise ValueError if the request lacks a query or key.
    """
    from attnviz.interventions.changes import Ablate, HideTokens, Knockout

    layer, head, stack = request.layer, request.head, request.stack
    if request.kind == "ablate":
        return Ablate(layer, head, stack=stack)
    if request.key is None:
        raise ValueError(f"a change of the kind {request.kind!r} needs 'key'")
    if request.kind == "hide":
        return HideTokens(request.key, layer, head, stack)
    if request.query is None:
        raise ValueError("a change of the kind 'knockout' needs 'query'")
    return Knockout(request.query, request.key, layer, head, request.renormalize, stack)
