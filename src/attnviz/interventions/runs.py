"""Repeated runs of a model on one example."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from attnviz.extraction.capture.change import ForwardChange
from attnviz.extraction.capture.forward import (
    Forward,
    check_capture,
    layer_sizes_of,
    run_forward,
)
from attnviz.extraction.capture.memory import check_runs
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.inputs.encode import Encoder, examples_of, values_per_example
from attnviz.extraction.inputs.generate import Generated, GenerationSettings, generate_text
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import Loaded, load, name_of
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import did_you_mean
from attnviz.utils.cleanup import Cleanup

__all__ = ["MINIMAL_CAPTURE", "NOT_KEPT", "ExampleRunner", "answering_stack", "check_options"]


# Options for runs of which only the answer is used. They capture no attention.
MINIMAL_CAPTURE = CaptureOptions(outline=True)


#: Options of records that functions without a record do not accept.
NOT_KEPT = ("generate", "layers", "dtype")
_ARGUMENTS = ("answer", "position", "target", "progress")


def check_options(options: Mapping[str, Any], *, refused: Collection[str] = ()) -> None:
    """Raise TypeError for unknown options, and for `refused` options that are not None."""
    for name, value in options.items():
        if name not in RecordOptions.__annotations__:
            suggestion = did_you_mean(name, [*RecordOptions.__annotations__, *_ARGUMENTS])
            raise TypeError(f"{name}= is not an argument{suggestion}")
        if name in refused and value is not None:
            raise TypeError(f"{name}= is not supported. Do not pass it.")


class ExampleRunner:
    """One example that a model runs repeatedly.

    `index` selects the example if the encoded input is a batch.
    """

    def __init__(
        self, loaded: Loaded, encoder: Encoder, title: str, encode: Callable[[], Batch], index: int
    ) -> None:
        self.loaded = loaded
        self.encoder = encoder
        self._title = title
        self._encode = encode
        self._index = index
        self.batch = self._encoded()

    @classmethod
    def one(
        cls,
        model: Any,
        inputs: Any,
        target: Any,
        decoder_input_ids: Any,
        options: RecordOptions,
    ) -> ExampleRunner:
        """Return the runs of the only example. Raise ValueError if there are several."""
        examples, many = examples_of(inputs)
        if many and len(examples) != 1:
            raise ValueError(
                f"inputs has {len(examples)} examples. Pass one at a time, such as inputs[0]."
            )
        runners, _ = cls.several(model, examples[0], target, decoder_input_ids, options)
        if len(runners) != 1:
            raise ValueError(f"inputs is a batch of {len(runners)} examples. Pass one at a time.")
        return runners[0]

    @classmethod
    def several(
        cls,
        model: Any,
        inputs: Any,
        target: Any,
        decoder_input_ids: Any,
        options: RecordOptions,
        *,
        settings: GenerationSettings | None = None,
    ) -> tuple[list[ExampleRunner], bool]:
        """Return the runs of each example, without padding, and whether there are several.

        With `settings`, each example is a prompt that the model continues.
        """
        check_options(options)
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        truncation = read_truncation(options.get("truncation", False))
        encoder = Encoder(loaded, truncation=truncation)
        title = options.get("name") or name_of(loaded.model)
        examples, many = examples_of(inputs)
        count = len(examples)
        targets = values_per_example("target", target, count) if many else [target]
        ids = (
            values_per_example("decoder_input_ids", decoder_input_ids, count)
            if many
            else [decoder_input_ids]
        )
        num_new_tokens = 0 if settings is None else settings.max_new_tokens or 1
        runners: list[ExampleRunner] = []
        for example in zip(examples, targets, ids, strict=True):
            encode = partial(
                encoder.encode,
                *example,
                generating=settings is not None,
                num_new_tokens=num_new_tokens,
            )
            size = encode().size
            many = many or size > 1
            runners += [cls(loaded, encoder, title, encode, index) for index in range(size)]
        return runners, many

    def alike(self, inputs: Any) -> list[ExampleRunner]:
        """Return runs of other examples of the same model, with the same input of the decoder."""
        ids = self.batch.arguments.get("decoder_input_ids")
        runners: list[ExampleRunner] = []
        for example in examples_of(inputs)[0]:
            encode = partial(self.encoder.encode, example, None, ids)
            size = encode().size
            runners += [
                ExampleRunner(self.loaded, self.encoder, self._title, encode, index)
                for index in range(size)
            ]
        return runners

    def _encoded(self) -> Batch:
        """Return the encoded example without padding."""
        return split_examples(self._encode())[self._index]

    def generated(
        self,
        settings: GenerationSettings,
        *,
        progress: bool,
        watch: Callable[[Cleanup], None] | None = None,
    ) -> Generated:
        """Return the text that the model generates. `watch` is as for `generate_text`."""
        model = self.loaded.model
        return generate_text(model, self._encoded(), settings, progress=progress, watch=watch)

    def producing(self, generated: Generated, method: str) -> ExampleRunner:
        """Return the runs of the example with its generated text."""

        def encode() -> Batch:
            batch = self._encoded()
            self.encoder.add_generated(batch, generated, method)
            return batch

        return ExampleRunner(self.loaded, self.encoder, self._title, encode, 0)

    def forward(
        self, options: CaptureOptions, change: ForwardChange | None, logits: int | None = None
    ) -> Forward:
        """Run the model. Raise RuntimeError if a change did not reach its layer."""
        # Runs write predictions and notes into the batch, so that each run needs a new one.
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
            raise RuntimeError(f"{sorted(missed)[0][0]} ran without its change")
        return forward

    def check_memory(
        self, options: CaptureOptions, settings: GenerationSettings | None = None
    ) -> None:
        """Raise MemoryError if the record of the longest possible text would not fit in memory."""
        check_capture(
            self.loaded,
            self.batch,
            None if settings is None else settings.max_tokens,
            encoder_decoder=self.encoder.encoder_decoder,
            options=options,
        )

    def check_runs(
        self, doing: str, *, copies: Callable[[int], int], kept: Callable[[int], int] = lambda _: 0
    ) -> None:
        """Raise MemoryError if runs of several copies of the example would not fit in memory.

        Arguments are as for `attnviz.extraction.capture.memory.check_runs`.
        """
        sizes = layer_sizes_of(
            self.loaded, self.batch, encoder_decoder=self.encoder.encoder_decoder
        )
        eager = getattr(self.loaded.model.config, "_attn_implementation", None) == "eager"
        check_runs(sizes, doing, copies=copies, num_kept=kept, eager=eager)

    def record(self, forward: Forward, options: CaptureOptions) -> AttentionRecord:
        """Return the record of a forward."""
        [record] = records_of_forward(
            self.loaded, self.encoder, self.batch, forward, title=self._title, options=options
        )
        return record


def answering_stack(record: AttentionRecord) -> AttentionStack:
    """Return the stack after whose tokens answers are read."""
    stacks = record.stacks
    return stacks["decoder" if "decoder" in stacks else record.stack().name]
