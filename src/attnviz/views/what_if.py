"""What views have whose reader may change the attention and look at the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate
from attnviz.server.kernel import Server
from attnviz.server.protocol import checked
from attnviz.server.server import Likely, OutcomeHeader, RecordServer, WantedChange
from attnviz.utils.arguments import shown
from attnviz.utils.progress import Steps
from attnviz.views.lifetime import weakly
from attnviz.views.record_view import RecordView

if TYPE_CHECKING:
    from attnviz.interventions.changes import Change
    from attnviz.interventions.repeated import RepeatedInterventions

__all__ = ["WhatIf"]

# Changes that are made together, and outcomes that a page carries.
_MOST_CHANGES = 32
_MOST_OUTCOMES = 50


class WhatIf(RecordView):
    """Base of views whose reader may change the attention, where they have the model.

    Parameters
    ----------
    record, include_layers, **traits
        See `attnviz.views.record_view.RecordView`.
    model, inputs, tokenizer, processor, target, truncation : optional
        What the record was extracted from, so that the model can run again. ``show_*`` functions
        give them by themselves where they are given a model.

    Attributes
    ----------
    changes : list of dict
        What is changed in the attention when the model runs again, all together, in the view's own
        words: ``{"kind": "knockout", "layer": 1, "head": 0, "query": 13, "key": 6}``, with
        ``"renormalize": False`` for a cut after the softmax; ``{"kind": "ablate", "layer": 1,
        "head": 0}``; ``{"kind": "hide", "key": 6}``. ``"stack"`` is the one that is shown where it
        is left out; a layer or a head of None is all. The reader adds and removes them.
    """

    changes: traitlets.List[Any] = traitlets.List(traitlets.Any()).tag(sync=True)

    def __init__(
        self,
        record: AttentionRecord,
        *,
        include_layers: int | Iterable[int] | None = None,
        model: Any = None,
        inputs: Any = None,
        tokenizer: Any = None,
        processor: Any = None,
        target: str | None = None,
        truncation: bool | int = False,
        **traits: Any,
    ) -> None:
        options = {"tokenizer": tokenizer, "processor": processor, "truncation": truncation}
        if model is None:
            given = {"inputs": inputs, "target": target, **options}
            unused = [name for name, value in given.items() if value not in (None, False)]
            if unused:
                raise TypeError(f"{unused[0]}= goes with model=, which is missing")
        elif inputs is None:
            raise TypeError("inputs is missing: what the model read, as it was given to extract")
        self._source = None if model is None else (model, inputs, target, options)
        self._interventions: RepeatedInterventions | None = None
        self._outcomes: dict[str, dict[str, Any]] = {}
        super().__init__(record, include_layers=include_layers, **traits)

    def _server(self) -> Server:
        return RecordServer(
            self.served_record, page=weakly(self._page_of), intervene=weakly(self._outcome)
        )

    def _outcome(self, wanted: tuple[WantedChange, ...]) -> Steps[OutcomeHeader]:
        """What changes do together to the answer; its words are kept for pages."""
        if self._source is None:
            show = "dashboard" if self.name == "dashboard" else f"show_{self.name}_view"
            raise ValueError(f"Make the view with {show}(model, text) to try it.")
        _check_count(len(wanted))
        changes = [_change(each) for each in wanted]
        if self._interventions is None:
            from attnviz.interventions.repeated import RepeatedInterventions

            model, inputs, target, options = self._source
            self._interventions = RepeatedInterventions(
                model, inputs, target=target, shown=self.record, **options
            )
        found = yield from self._interventions.outcome(changes)
        effect = found.effect
        if wanted:
            asked = [asdict(each) for each in wanted]
            self._outcomes[json.dumps(asked)] = {
                "changes": asked,
                "described": list(found.described),
                "sentence": found.sentence,
            }
            while len(self._outcomes) > _MOST_OUTCOMES:
                self._outcomes.pop(next(iter(self._outcomes)))
        return {
            "sentence": found.sentence,
            "described": list(found.described),
            "effect": str(effect),
            "measure": effect.measure,
            "before": effect.before,
            "after": effect.after,
            "noise": effect.noise,
            "divergence": effect.divergence,
            "likeliest_before": _likely(effect.likeliest_before),
            "likeliest_after": _likely(effect.likeliest_after),
        }

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        made = super()._page_state(state)
        return {**made, "outcomes": list(self._outcomes.values())} if self._outcomes else made

    @traitlets.validate("changes")
    def _validate_changes(self, proposal: Mapping[str, Any]) -> list[dict[str, Any]]:
        given = proposal["value"]
        try:
            _check_count(len(given))
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None
        return [self._checked_change(place, each) for place, each in enumerate(given)]

    def _checked_change(self, place: int, given: Any) -> dict[str, Any]:
        name = f"changes[{place}]"
        if not isinstance(given, Mapping):
            raise traitlets.TraitError(
                f"{name}={shown(given)} must be a dict such as "
                '{"kind": "knockout", "layer": 1, "head": 0, "query": 5, "key": 2}'
            )
        unknown = sorted(set(map(str, given)) - set(WantedChange.__dataclass_fields__))
        if unknown:
            raise traitlets.TraitError(
                f"{name} has no {unknown[0]!r}; it takes "
                f"{', '.join(WantedChange.__dataclass_fields__)}"
            )
        try:
            wanted = checked(WantedChange, {"stack": self.stack, **given}, f"{name}.")
            change = _change(wanted)
            from attnviz.interventions.changes import check_change

            check_change(change, self._stack_named(wanted.stack))
        except (TypeError, ValueError, IndexError, KeyError) as error:
            words = str(error.args[0]) if error.args else type(error).__name__
            raise traitlets.TraitError(
                words if words.startswith(name) else f"{name}: {words}"
            ) from None
        return asdict(wanted)


def _check_count(count: int) -> None:
    if count > _MOST_CHANGES:
        raise ValueError(f"changes has {count} entries; at most {_MOST_CHANGES} are made together")


def _likely(candidates: Iterable[Candidate]) -> list[Likely]:
    return [Likely(text=each.text, probability=each.probability) for each in candidates]


def _change(wanted: WantedChange) -> Change:
    """The change of `attnviz.interventions` that a reader asks for."""
    from attnviz.interventions.changes import Ablate, HideTokens, Knockout

    layer, head, stack = wanted.layer, wanted.head, wanted.stack
    if wanted.kind == "ablate":
        return Ablate(layer, head, stack=stack)
    if wanted.key is None:
        raise ValueError(f"a change of the kind {wanted.kind!r} needs 'key'")
    if wanted.kind == "hide":
        return HideTokens(wanted.key, layer, head, stack)
    if wanted.query is None:
        raise ValueError("a change of the kind 'knockout' needs 'query'")
    return Knockout(wanted.query, wanted.key, layer, head, wanted.renormalize, stack)
