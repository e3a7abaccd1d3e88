"""Base class of views in which a reader can change the attention and run the model again.

A change is, for example, the ablation of a head. The changes of a view are made together in one
run. The answer is the number that is measured in the run, for example the logit of one token minus
the logit of another token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import traitlets

from attnviz.record.record import AttentionRecord, derive_record
from attnviz.record.stack import AttentionStack
from attnviz.server.server import RecordServer
from attnviz.utils.arguments import function_name, short_repr
from attnviz.views.lifetime import weakly
from attnviz.views.position import same_tokens
from attnviz.views.record_view import RecordView
from attnviz.views.trait_types import Choice, as_trait_errors

if TYPE_CHECKING:
    from attnviz.interventions.changes import Change
    from attnviz.interventions.intervene import ChangedRecord
    from attnviz.views.changed_runs import ChangedRuns, Measured


#: Arguments of `attnviz.extract` that determine which tokens the model gets from the inputs.
INPUT_OPTIONS = ("tokenizer", "processor", "target", "truncation", "part")
# Maximum number of changes in one run.
_MAX_CHANGES = 32


class WhatIf(RecordView):
    """Base class of views in which a reader can change the attention and run the model again.

    Parameters
    ----------
    record, include_layers, **others
        See `attnviz.views.record_view.RecordView`.
    model, inputs, tokenizer, processor, target, truncation, part : optional
        Arguments with which the record was extracted. They are needed to run the model again.
        ``show_*`` functions pass them if they have a model. If the record of the view is replaced
        by a record with other tokens, of another model or without attention weights, the view does
        not use them any longer.

    Attributes
    ----------
    runs_model : bool
        Whether the model can run again. If False, the reader cannot change the attention. Read
        only.
    answer : int, str, pair of these, callable, or None
        Number that is measured to find the effect of the changes, as for `attnviz.intervene`. For
        two tokens, the answer is the logit of the first token minus the logit of the second token.
        For one token, it is the logit of this token minus the logit of the most likely other token.
        For a function, it is the result of the function. None is the default answer of `intervene`,
        for most models the logit of token A minus the logit of token B. Token A is the most likely
        token before the changes, and token B is the most likely other token after the changes. An
        answer other than None is checked when it is set. The check runs the model if the model has
        not run before.
    changes : list of Change
        Changes of the attention, which are made together when the model runs again: `Ablate` (with
        factor 0), `Knockout` and `HideTokens`, as for `attnviz.intervene`. Each argument of a
        change selects one layer, head or token, or all with None. Texts of tokens and negative
        numbers are replaced by numbers. The default of `stack` is the stack that is shown. The list
        also changes when the reader adds or removes changes.
    run : {"before", "after", "difference"}
        Run whose weights are drawn. ``"before"`` is the unchanged run, ``"after"`` the run with
        `changes`, and ``"difference"`` the weights after minus the weights before. If `changes` is
        empty, the unchanged run is drawn. Adding a change switches ``"before"`` to ``"after"``.
    changed_record : ChangedRecord or None
        Record of the run with `changes`, or None if `changes` is empty. Read only.
    """

    runs_model = traitlets.Bool(read_only=True).tag(sync=True)
    answer = traitlets.Any(None).tag(sync=True, to_json=lambda value, _: _as_json(value))
    changes: traitlets.List[Any] = traitlets.List(traitlets.Any()).tag(
        sync=True, to_json=lambda value, _: _changes_as_json(value)
    )
    run = Choice(["before", "after", "difference"], "before").tag(sync=True)

    # Whether `__init__` has finished. Only then do new changes switch `run` to "after". The initial
    # value of `run` is determined by `_first_state`.
    _initialized = False
    # Value of `answer` in the form that `ChangedRuns` needs: one or two tokens are a tuple.
    _measured: Measured = None

    def __init__(
        self,
        record: AttentionRecord,
        *,
        include_layers: int | Iterable[int] | None = None,
        model: Any = None,
        inputs: Any = None,
        **others: Any,
    ) -> None:
        options = {name: others[name] for name in INPUT_OPTIONS if name in others}
        traits = {name: value for name, value in others.items() if name not in options}
        if model is None:
            for name, value in {"inputs": inputs, **options}.items():
                if value is not None and value is not False:
                    raise TypeError(f"{name}= needs model=, which is missing")
        elif inputs is None:
            raise TypeError("inputs is missing. Pass the inputs that attnviz.extract received.")
        elif not _has_weights(record):
            raise TypeError(
                "model= needs a record of attention weights, but this one has other numbers. Omit "
                "model and inputs."
            )
        target = options.pop("target", None)
        self._source = None if model is None else (model, inputs, target, options)
        self._changed_runs: ChangedRuns | None = None
        super().__init__(record, include_layers=include_layers, **traits)
        self._initialized = True

    @traitlets.default("runs_model")
    def _default_runs_model(self) -> bool:
        return self._source is not None

    @property
    def changed_record(self) -> ChangedRecord | None:
        """Record of the run with `changes`, or None if `changes` is empty.

        If the results of this run are not cached, reading the attribute runs the model.

        Raises
        ------
        ValueError
            If the view has no model.
        MemoryError
            If the record does not fit into memory.

        Examples
        --------
        >>> view.changes = [Ablate(layers=1, heads=0)]    # doctest: +SKIP
        >>> print(view.changed_record.effect)             # doctest: +SKIP
        """
        return self._runs.changed_record(tuple(self.changes)) if self.changes else None

    @property
    def _runs(self) -> ChangedRuns:
        if self._source is None:
            raise ValueError(no_model_message("changes", self.name))
        if self._changed_runs is None:
            from attnviz.views.changed_runs import ChangedRuns

            self._changed_runs = ChangedRuns(self.served_record, self._source)
            self._changed_runs.measured = self._measured
        return self._changed_runs

    def _first_state(self, values: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        if values.get("changes") and self._source is not None:
            values = {"run": "after"} | values
        return super()._first_state(values, stack)

    def _fit_to_record(self, before: AttentionRecord) -> None:
        self._changed_runs = None
        if self._source is not None and not (
            before.model == self._record.model
            and same_tokens(before, self._record)
            and _has_weights(self._record)
        ):
            # The view has only the inputs of the previous record. Another run of the model on these
            # inputs would not fit the new record.
            self._source = None
            self.changes = []
            self.answer = None
            self.set_trait("runs_model", value=False)
        super()._fit_to_record(before)

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        made = {**super()._page_state(state), "answer": _as_json(state.get("answer"))}
        return {**made, "changes": _changes_as_json(state.get("changes", ()))}

    def _fitting_value(self, name: str) -> Any:
        if name != "changes":
            return super()._fitting_value(name)
        fitting = []
        for change in self.changes:
            with suppress(traitlets.TraitError):
                fitting.append(self._checked_change(0, change))
        return fitting

    def _server(self) -> RecordServer:
        runs = None if self._source is None else self._runs
        return RecordServer(self.served_record, page=weakly(self._page_of), interventions=runs)

    def _page_content(self, state: Mapping[str, Any]) -> tuple[AttentionRecord, dict[str, Any]]:
        """Return the record and the state of a page, with the cached results of changed runs.

        If the page shows the run with `changes` or the difference, the record also contains the
        stacks of this run and of the difference.
        """
        record, made = super()._page_content(state)
        if self._source is None:
            return record, made
        changes = tuple(_read_change(change, record.stack) for change in state.get("changes", ()))
        if changes and state.get("run", "before") != "before":
            weights = self._runs.weights(changes)
            stacks = (*weights.after.values(), *weights.difference.values())
            record = derive_record(record, {**record.stacks, **{one.name: one for one in stacks}})
            names = {
                name: {"after": after.name, "difference": weights.difference[name].name}
                for name, after in weights.after.items()
            }
            made["changed_run"] = {"changes": _changes_as_json(changes), "stacks": names}
        return record, {**made, **self._runs.page_state()}

    @traitlets.validate("run")
    def _validate_shown_run(self, proposal: Mapping[str, Any]) -> str:
        value: str = proposal["value"]
        if value != "before" and not self.runs_model:
            raise traitlets.TraitError(no_model_message(f"run={value!r}", self.name))
        return value

    @traitlets.validate("answer")
    def _validate_answer(self, proposal: Mapping[str, Any]) -> Any:
        value = proposal["value"]
        pair = isinstance(value, list | tuple)
        if pair and len(value) not in (1, 2):
            raise traitlets.TraitError(
                f"answer={short_repr(value)} must be one token, or a pair (answer, other)"
            )
        measured = _measured(value)
        if measured and not self.runs_model:
            raise traitlets.TraitError(no_model_message(f"answer={short_repr(value)}", self.name))
        # Do not check the default answer (None). Some models have no default answer, but their
        # views must be usable without an answer.
        if measured and measured != self._measured:
            with as_trait_errors():
                self._runs.runner_for(measured)
        return list(value) if pair else value

    @traitlets.observe("answer")
    def _measure_answer(self, change: Mapping[str, Any]) -> None:
        self._measured = _measured(change["new"])
        if self._changed_runs is not None:
            self._changed_runs.measured = self._measured

    @traitlets.observe("changes")
    def _show_changed_run(self, change: Mapping[str, Any]) -> None:
        if not self._initialized or not self.runs_model or self.run != "before":
            return
        if any(entry not in change["old"] for entry in change["new"]):
            self.run = "after"

    @traitlets.validate("changes")
    def _validate_changes(self, proposal: Mapping[str, Any]) -> list[Change]:
        changes = proposal["value"]
        if len(changes) > _MAX_CHANGES:
            raise traitlets.TraitError(
                f"changes has {len(changes)} entries. Pass at most {_MAX_CHANGES}."
            )
        return [self._checked_change(index, change) for index, change in enumerate(changes)]

    def _checked_change(self, index: int, value: Any) -> Change:
        with as_trait_errors(f"changes[{index}]: "):
            return _read_change(value, lambda name: self._stack_named(name or self.stack))


def no_model_message(argument: str, view: str) -> str:
    """Return the error message for an argument that needs a view with a model."""
    show = "show_dashboard" if view == "dashboard" else f"show_{view}_view"
    return (
        f"{argument}: this view has no model that could run again. Make the view with "
        f"{show}(model, text), without generate= and words=True."
    )


def _read_change(value: Any, stack_named: Callable[[str | None], AttentionStack]) -> Change:
    """Return a change whose fields are names of stacks, non-negative numbers or None.

    `value` is a change, in which a token can also be a text, or the JSON form of a change.
    `stack_named` returns the stack with a name, or the default stack for None. Raise TypeError,
    ValueError, IndexError or KeyError if the change cannot be applied.
    """
    from attnviz.interventions.changes import Change, change_for_view, change_from_json

    if isinstance(value, Mapping):
        value = change_from_json(value)
    if not isinstance(value, Change):
        raise TypeError(f"{short_repr(value)} must be a change such as Ablate(layers=1, heads=0)")
    return change_for_view(value, stack_named(value.stack))


def _measured(answer: Any) -> Measured:
    """Convert one or two tokens of the trait `answer` to a tuple. Return other values unchanged."""
    if answer is None or callable(answer):
        return cast("Measured", answer)
    return tuple(answer) if isinstance(answer, list | tuple) else (answer,)


def _as_json(answer: Any) -> Any:
    """Convert the trait `answer` to a JSON value.

    A function becomes a dict with its name and its id. The id distinguishes functions with the same
    name. Other values are returned unchanged.
    """
    return {"function": function_name(answer), "id": id(answer)} if callable(answer) else answer


def _has_weights(record: Any) -> bool:
    """Whether a record has attention weights or ranks, not differences or attributions."""
    # Return True for a value that is not a record. `RecordView` raises an error for it.
    stacks = getattr(record, "stacks", {}).values()
    return all(
        stack.linear or stack.ranks or (stack.measure == "weight" and not stack.signed)
        for stack in stacks
    )


def _changes_as_json(changes: Collection[Any]) -> list[Mapping[str, Any]]:
    """Convert changes to their JSON forms. A change may already have this form."""
    if not changes:
        # Without changes, do not import transformers, which takes long.
        return []
    from attnviz.interventions.changes import change_to_json

    return [change if isinstance(change, Mapping) else change_to_json(change) for change in changes]
