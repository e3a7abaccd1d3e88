"""Runs of a view's model with changed attention, and a cache of their results.

The results are effects on an answer, attention weights, and effects of single query-key pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
)
from attnviz.utils.arguments import short_repr
from attnviz.utils.numbers import format_change, format_small

if TYPE_CHECKING:
    from attnviz.interventions.changes import Change
    from attnviz.interventions.effect import Effect
    from attnviz.interventions.intervene import ChangedRecord
    from attnviz.interventions.repeated import Outcome, RepeatedInterventions

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


Changes = tuple["Change", ...]

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
        self._outcomes: dict[Changes, _CachedEffect] = {}
        self._runs: dict[Changes, _Run] = {}
        self.measured = measured
        self._names: dict[Changes, str] = {}
        self._edges: dict[EdgeRequest, EdgeHeader] = {}

    def outcome(
        self, changes: Sequence[Mapping[str, Any]], measured: Measured | None = ()
    ) -> OutcomeHeader:
        """Compute the effect that all `changes` together have on an answer.

        `measured` determines the answer: a function of the model's output, or tokens whose logits
        are measured. None selects the answer of the view, and an empty tuple the default of
        `attnviz.intervene`.
        """
        measured = self.measured if measured is None else measured
        outcome = self._compute_outcome(self._read(changes), measured)
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

    def _compute_outcome(self, changes: Changes, measured: Measured) -> Outcome:
        interventions = self._get_interventions()
        check_count(len(changes))
        outcome = interventions.outcome(changes, measured or None)
        if changes:
            self._outcomes.pop(changes, None)
            self._outcomes[changes] = _CachedEffect(
                outcome.described, outcome.sentence, outcome.effect
            )
            _drop_oldest(self._outcomes, _MAX_OUTCOMES)
            if outcome.record is not None:
                cached = self._runs.pop(changes, None)
                shown = cached.shown if cached else self._shown_stacks(changes, outcome)
                self._runs[changes] = _Run(measured, outcome.record, shown)
                _drop_oldest(self._runs, _MAX_RUNS)
        return outcome

    def run(self, changes: Changes, measured: Measured | None = None) -> _Run:
        """Return the run with `changes` from the cache, or run the model.

        If `measured` is None, a cached run may have measured any answer. Otherwise it must have
        measured this answer. Raise MemoryError if the weights do not fit into memory.
        """
        cached = self._runs.get(changes)
        if cached is None or measured not in (None, cached.measured):
            self._compute_outcome(changes, self.measured if measured is None else measured)
        if changes not in self._runs:
            raise MemoryError(
                "the weights of the changed run do not fit into free memory. Its answer is "
                "available."
            )
        return self._runs[changes]

    def changed(self, changes: Sequence[Mapping[str, Any]]) -> ChangedHeader:
        """Describe the stacks of the run with `changes` for the browser."""
        if not changes:
            raise ValueError("changes is empty. Pass at least one change.")
        run = self.run(self._read(changes))
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
        from attnviz.interventions.changes import Knockout

        for changes, cached in self._outcomes.items():
            change, effect = changes[0], cached.effect
            if (
                len(changes) > 1
                or not isinstance(change, Knockout)
                or (change.stack, change.queries, change.keys) != (pair.stack, pair.query, pair.key)
                or change.layers not in (None, pair.layer)
                or change.heads not in (None, pair.head)
            ):
                # The run did not change the pair alone, or not in the head of the pair.
                continue
            when = "before" if change.renormalize else "after"
            where = "" if change.heads is not None else f" in all heads of layer {change.layers}"
            where = " in all layers" if change.layers is None else where
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
            # Without outcomes, transformers need not be installed.
            from attnviz.interventions.changes import change_to_json

            made["outcomes"] = [
                {
                    "changes": list(map(change_to_json, changes)),
                    "described": list(cached.described),
                    "sentence": cached.sentence,
                }
                for changes, cached in self._outcomes.items()
            ]
        if self._edges:
            edges = []
            for asked, header in self._edges.items():
                cuts, noise = self._describe_cuts(asked)
                edges.append({**asdict(asked), **header, "cuts": cuts, "noise": noise})
            made["known_edges"] = edges
        return made

    def _read(self, changes: Sequence[Mapping[str, Any]]) -> Changes:
        return tuple(read_change(change, self._record.stack) for change in changes)

    def _shown_stacks(self, changes: Changes, outcome: Outcome) -> ShownStacks:
        """Return the stacks of a changed run and their differences, with unique names."""
        if outcome.record is None:
            raise TypeError("a run without a record has no stacks")
        words = self._unique_name(changes, outcome.described)
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

    def _unique_name(self, changes: Changes, described: Sequence[str]) -> str:
        """Return a short unique name for changes. `described` has one sentence for each change."""
        if changes in self._names:
            return self._names[changes]
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
        self._names[changes] = words
        return words


def check_count(count: int) -> None:
    """Raise ValueError if `count` changes are too many for one run."""
    if count > _MAX_CHANGES:
        raise ValueError(f"changes has {count} entries. Pass at most {_MAX_CHANGES}.")


def read_change(value: Any, stack_named: Callable[[str | None], AttentionStack]) -> Change:
    """Return a change that the reader or Python has chosen, with numbers in place of token texts.

    `value` is a change or its JSON form. `stack_named` returns the stack with a name, or the
    default stack for None. Raise TypeError, ValueError, IndexError or KeyError if the change cannot
    be applied.
    """
    from attnviz.interventions.changes import Change, change_for_view, change_from_json

    if isinstance(value, Mapping):
        value = change_from_json(value)
    if not isinstance(value, Change):
        raise TypeError(f"{short_repr(value)} must be a change such as Ablate(layers=1, heads=0)")
    return change_for_view(value, stack_named(value.stack))


def _drop_oldest(cache: dict[Any, Any], max_entries: int) -> None:
    """Remove the oldest entries of a dict until it has at most `max_entries`."""
    while len(cache) > max_entries:
        cache.pop(next(iter(cache)))


def _answer_tokens(candidates: Iterable[Candidate]) -> list[AnswerToken]:
    return [
        AnswerToken(text=candidate.text, id=candidate.id, probability=candidate.probability)
        for candidate in candidates
    ]
