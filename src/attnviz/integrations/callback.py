"""Callback that logs attention during training with the `Trainer` of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import attnviz as av
from attnviz.integrations.log import Entry, resolve_targets, write_entry
from attnviz.utils.arguments import short_repr, whole_number
from attnviz.utils.host import warn_caller
from attnviz.views.record_view import RecordView


class AttentionCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Log the attention that a model has in some texts while the model is trained.

    The callback extracts the attention of the model in each text before the first step, at each
    evaluation (or every `every` steps), and after the last step. To each active run of an
    experiment tracker, it logs one interactive page per text. By default, the page shows all heads.
    The callback also logs one metric per attention pattern, such as ``attention/previous token``.
    A pattern is a set of query-key pairs. The score of a head is its weight on these pairs, summed
    over the keys and averaged over the queries that have such a pair. The metric is the largest
    score of all heads in a text, averaged over the texts. After the last step, the callback
    logs one additional page per text, with a slider that chooses the step.

    Parameters
    ----------
    texts : str or sequence of str
        Short texts. The same texts are used at all steps.
    view : class of view, optional
        Class of the views on the pages: `attnviz.ModelView` (default, shows all heads),
        `attnviz.HeadView`, `attnviz.MatrixView` or `attnviz.NeuronView`.
    every : "evaluate" or int, default "evaluate"
        The attention is logged at each multiple of this number of steps. "evaluate" means after
        each evaluation.
    to : run, module, path-like or list of these, optional
        Runs or folders to which to log, as in `attnviz.integrations.log`. By default, all runs that
        are active when the callback logs. If no run is active, nothing is logged, and a warning is
        issued the first time.
    name : str, default "attention"
        Prefix of the names of pages and metrics.
    max_mb : float or None, default 1.0
        Maximum size in megabytes of a page with one step. None means the default limit of the view.
        Pages with all steps always have the default limit.
    tokenizer : object, optional
        Tokenizer of the model. By default, the ``processing_class`` of the Trainer.
    **options
        Further arguments of `attnviz.extract`, such as `layers`.

    Attributes
    ----------
    records : dict of int to list of AttentionRecord
        For each step at which the callback extracted attention, the list of one record per text.
        Records of the same text can be passed to `attnviz.compare`. In distributed training, only
        the main process has the records of all steps. Other processes have only the most recent
        records.

    Notes
    -----
    With DDP, FSDP and DeepSpeed, the model runs in every process, because sharded parameters need
    all processes. Only the main process writes to runs. The callback does not change the model, its
    training mode or the random state of torch. An error before the first step stops the training. A
    later error only issues a warning.

    Examples
    --------
    >>> from attnviz.integrations import AttentionCallback
    >>> callback = AttentionCallback("the cat sat on the table", every=100)     # doctest: +SKIP
    >>> trainer = Trainer(model, arguments, callbacks=[callback], ...)        # doctest: +SKIP
    """

    def __init__(
        self,
        texts: str | Sequence[str],
        *,
        view: type[RecordView] = av.ModelView,
        every: int | Literal["evaluate"] = "evaluate",
        to: Any = None,
        name: str = "attention",
        max_mb: float | None = 1.0,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        self._texts = [texts] if isinstance(texts, str) else list(texts)
        view_class: Any = view
        if not (isinstance(view_class, type) and issubclass(view_class, RecordView)):
            raise TypeError(
                f"view must be a class such as attnviz.ModelView; got {short_repr(view)}"
            )
        self._every = every if every == "evaluate" else whole_number("every", every, 1)
        # Raise the error for an invalid `to` before the training starts.
        if to is not None:
            resolve_targets(to)
        self._view, self._to, self._name, self._max_mb = view, to, name, max_mb
        self._tokenizer, self._options = tokenizer, {"progress": False} | options
        self.records: dict[int, list[av.AttentionRecord]] = {}
        self._has_warned = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the attention before the training starts.

        The step is 0, or the step of the checkpoint from which the training resumes.

        Parameters
        ----------
        args, state, control, **kwargs
            Arguments from the Trainer.
        """
        del args, control
        self._log_attention(state, kwargs)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the attention after an evaluation, if `every` is "evaluate".

        Parameters
        ----------
        args, state, control, **kwargs
            Arguments from the Trainer.
        """
        del args, control
        if self._every == "evaluate" and state.global_step not in self.records:
            self._try_log(state, kwargs)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the attention if the step is a multiple of `every`, or if it is the last step.

        The last step is logged in this method and not in ``on_train_end``, because trackers may end
        their runs in ``on_train_end``.

        Parameters
        ----------
        args, state, control, **kwargs
            Arguments from the Trainer.
        """
        del args
        last = state.global_step >= state.max_steps or control.should_training_stop
        due = self._every != "evaluate" and state.global_step % self._every == 0
        if (due or last) and state.global_step not in self.records:
            self._try_log(state, kwargs, last=last)

    def _try_log(
        self, state: TrainerState, arguments: dict[str, Any], *, last: bool = False
    ) -> None:
        try:
            self._log_attention(state, arguments, last=last)
        except Exception as error:  # noqa: BLE001 - an error in logging must not end the training
            warn_caller(f"AttentionCallback, step {state.global_step}: {error}")

    def _log_attention(
        self, state: TrainerState, arguments: dict[str, Any], *, last: bool = False
    ) -> None:
        tokenizer = self._tokenizer or arguments.get("processing_class")
        step = state.global_step
        records = av.extract(arguments["model"], self._texts, tokenizer=tokenizer, **self._options)
        if not state.is_world_process_zero:
            # Drop the records of earlier steps. Only the main process needs them, for the pages
            # with all steps.
            self.records = {step: records}
            return
        self.records[step] = records
        runs = resolve_targets(self._to)
        if not runs:
            if not self._has_warned:
                warn_caller(
                    "AttentionCallback: no tracker has an active run, so nothing is logged. Pass a "
                    "folder as to=, or read callback.records."
                )
                self._has_warned = True
            return
        metrics = {
            f"{self._name}/{name}": value for name, value in _largest_scores(records).items()
        }
        write_entry(Entry(self._name, step=step, metrics=metrics), runs)
        for number, record in enumerate(records):
            view = self._view(record)
            write_entry(Entry(f"{self._name}/text {number}", view, step, self._max_mb), runs)
            view.close()
        if last and len(self.records) > 1:
            for number in range(len(records)):
                steps = self._steps(number)
                # Do not pass `max_mb`, which is the limit of a page with one step.
                write_entry(Entry(f"{self._name}/text {number}, all steps", steps, step), runs)
                steps.close()

    def _steps(self, number: int) -> av.CompareView:
        """Return a view that compares the records of a text at all logged steps.

        `number` is the index of the text. The view opens at the last step.
        """
        steps = sorted(self.records)
        names = [f"step {step}" for step in steps]
        records = [self.records[step][number] for step in steps]
        view = av.CompareView(av.compare(records, names=names))
        view.member = len(steps) - 1
        return view


def _largest_scores(records: Sequence[av.AttentionRecord]) -> dict[str, float]:
    """Return the largest score of each pattern over all heads, averaged over the texts.

    `records` has one record per text. The head with the largest score can differ between texts. If
    no head has a score of a pattern in a text, the mean for this pattern omits the text. The keys
    of the result are the names of the patterns. If a record has several stacks, the name of the
    stack precedes the pattern, as in "cross previous token".
    """
    scores_by_name: dict[str, list[float]] = {}
    for record in records:
        for stack in record.stacks.values():
            names = av.analysis.measures_of(stack)
            patterns = [name for name in names if av.analysis.MEASURES[name].kind == "pairs"]
            for pattern, layers in av.analysis.all_head_scores(stack, patterns).items():
                scores = np.concatenate(layers)
                if not np.isnan(scores).all():
                    name = pattern if len(record.stacks) == 1 else f"{stack.name} {pattern}"
                    scores_by_name.setdefault(name, []).append(float(np.nanmax(scores)))
    return {name: float(np.mean(values)) for name, values in scores_by_name.items()}
