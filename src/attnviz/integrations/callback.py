"""Callback for the Trainer of transformers that logs attention during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from attnviz.analysis.heads import all_head_scores
from attnviz.comparison.compare import compare
from attnviz.extraction import extract
from attnviz.integrations.log import Entry, resolve_targets, write_entry
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import short_repr, whole_number
from attnviz.utils.host import warn_caller
from attnviz.views.compare import CompareView
from attnviz.views.model import ModelView
from attnviz.views.record_view import RecordView

__all__ = ["AttentionCallback"]


class AttentionCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Log the attention of a model to fixed texts during training.

    The model reads each text once at step 0, at each evaluation (or every `every` steps) and at the
    last step. Every active run gets one page per text with all heads. It also gets metrics: the
    largest score of each pattern among the heads, averaged over the texts, for example
    ``attention/previous token``. The last step adds one page per text with a slider over all steps.

    Parameters
    ----------
    texts : str or sequence of str
        Short texts that stay the same during training.
    view : class of view, optional
        View of the pages: `attnviz.ModelView` (default, all heads), `HeadView`, `MatrixView` or
        `NeuronView`.
    every : "evaluate" or int, default "evaluate"
        Log at each evaluation, or at multiples of this number of steps.
    to : run, module, path-like or list of these, optional
        Targets, as in `attnviz.integrations.log`. By default, all runs that are active at a step.
        Without an active run, nothing is logged, and a warning is issued once.
    name : str, default "attention"
        Prefix of the names of pages and metrics.
    max_mb : float, default 1.0
        Maximum size of a page in megabytes. The page with all steps has the default limit of views
        instead.
    tokenizer : object, optional
        Tokenizer of the model. By default, the Trainer's ``processing_class``.
    **options
        Further arguments of `attnviz.extract`, such as `layers`.

    Attributes
    ----------
    records : dict of int to list of AttentionRecord
        Records by step, one per text, for `attnviz.compare`. Processes other than the main process
        keep only the last step.

    Notes
    -----
    With DDP, FSDP and DeepSpeed, every process reads the texts, because sharded parameters need all
    processes. Only the main process writes. The callback does not change the model, its training
    mode or the random state of torch. An error at step 0 ends the training. Later errors become
    warnings.

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
        view: type[RecordView] = ModelView,
        every: int | Literal["evaluate"] = "evaluate",
        to: Any = None,
        name: str = "attention",
        max_mb: float | None = 1.0,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        text_list: list[Any] = [texts] if isinstance(texts, str) else list(texts)
        if not text_list or not all(isinstance(text, str) and text.strip() for text in text_list):
            raise ValueError(
                f"texts must be one or more non-empty strings; got {short_repr(texts)}"
            )
        view_class: Any = view
        if not (isinstance(view_class, type) and issubclass(view_class, RecordView)):
            raise TypeError(
                f"view must be a class such as attnviz.ModelView; got {short_repr(view)}"
            )
        self._texts: list[str] = text_list
        self._every = every if every == "evaluate" else whole_number("every", every, 1)
        # Raise an error for invalid targets before the training.
        if to is not None:
            resolve_targets(to)
        self._view, self._to, self._name, self._max_mb = view, to, name, max_mb
        self._tokenizer, self._options = tokenizer, {"progress": False} | options
        self.records: dict[int, list[AttentionRecord]] = {}
        self._has_warned = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the attention at the first step, or at the step of a checkpoint.

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
        """Log the attention after an evaluation.

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
        """Log the attention if it is due at this step, and at the last step.

        The last step is not left to ``on_train_end``, where trackers close their runs.

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
        records = extract(arguments["model"], self._texts, tokenizer=tokenizer, **self._options)
        if not state.is_world_process_zero:
            # Only the main process needs the earlier records, to write the pages with all steps.
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
                # The page has all steps, so it gets the default limit instead of max_mb.
                write_entry(Entry(f"{self._name}/text {number}, all steps", steps, step), runs)
                steps.close()

    def _steps(self, number: int) -> CompareView:
        """Return a view that compares the records of a text at all steps."""
        steps = sorted(self.records)
        names = [f"step {step}" for step in steps]
        view = CompareView(compare([self.records[step][number] for step in steps], names=names))
        view.member = len(steps) - 1
        return view


def _largest_scores(records: Sequence[AttentionRecord]) -> dict[str, float]:
    """Return the largest score of each pattern among the heads, averaged over the texts."""
    scores_by_name: dict[str, list[float]] = {}
    for record in records:
        for stack in record.stacks.values():
            for pattern, layers in all_head_scores(stack).items():
                scores = np.concatenate(layers)
                if not np.isnan(scores).all():
                    name = pattern if len(record.stacks) == 1 else f"{stack.name} {pattern}"
                    scores_by_name.setdefault(name, []).append(float(np.nanmax(scores)))
    return {name: float(np.mean(values)) for name, values in scores_by_name.items()}
