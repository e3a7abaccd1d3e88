"""One example that a model reads again and again, and where its answer is read."""

from __future__ import annotations

from typing import Any

from attnviz.extraction.capture.change import ForwardChange
from attnviz.extraction.capture.forward import Forward, run_forward
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.inputs.encode import Encoder, examples_of
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import Loaded, load, name_of
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.extraction.parallel import check_whole
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import shown

__all__ = ["Runs", "row_of"]


class Runs:
    """One example that a model reads again and again."""

    def __init__(
        self,
        model: Any,
        inputs: Any,
        target: Any,
        decoder_input_ids: Any,
        options: RecordOptions,
    ) -> None:
        self.loaded: Loaded = load(model, options.get("tokenizer"), options.get("processor"))
        check_whole(self.loaded.model)
        truncation = read_truncation(options.get("truncation", False))
        self.encoder = Encoder(self.loaded, truncation=truncation)
        self._title = options.get("name") or name_of(self.loaded.model)
        examples, many = examples_of(inputs)
        if many and len(examples) != 1:
            raise ValueError(
                f"inputs: {len(examples)} examples; change one at a time, intervene(model, "
                "inputs[i], changes)"
            )
        self._given = (examples[0], target, decoder_input_ids)
        self.batch = self._encoded()

    def _encoded(self) -> Batch:
        batch = self.encoder.encode(*self._given)
        if batch.size != 1:
            raise ValueError(f"inputs: a batch of {batch.size} examples; change one at a time")
        return batch

    def forward(
        self, options: CaptureOptions, change: ForwardChange | None, logits: int | None = None
    ) -> Forward:
        """Run the model; raise RuntimeError where a change did not reach its layer."""
        # Predictions and notes are written into it.
        self.batch = self._encoded()
        forward = run_forward(
            self.loaded,
            self.batch,
            encoder_decoder=self.encoder.encoder_decoder,
            options=options,
            change=change,
            logits=logits,
        )
        missed = set(change or ()) - forward.collector.changed
        if missed:
            raise RuntimeError(f"{sorted(missed)[0][0]} ran and was not changed")
        return forward

    def record(self, forward: Forward, options: CaptureOptions) -> AttentionRecord:
        """The record of the last forward."""
        [record] = records_of_forward(
            self.loaded, self.encoder, self.batch, forward, title=self._title, options=options
        )
        return record


def row_of(
    record: AttentionRecord, position: int | str | None, outputs: Any
) -> tuple[int | None, str]:
    """Which row of the logits is read, from the end, and the token that stands there."""
    logits = getattr(outputs, "logits", None)
    if getattr(logits, "dim", lambda: 0)() != 3:
        if position is not None:
            raise ValueError(
                f"position={shown(position)}: the model gives one answer for the whole input; "
                "leave position out"
            )
        return None, ""
    stacks = record.stacks
    tokens = stacks["decoder" if "decoder" in stacks else record.stack().name].query_tokens
    place = len(tokens) - 1 if position is None else tokens.position(position, "position")
    return place - len(tokens), tokens.text[place].strip("·")
