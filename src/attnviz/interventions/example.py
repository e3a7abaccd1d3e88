"""An example: one input of a model, such as a text, on which the model can run several times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attnviz.extraction.capture.collector import Observer
from attnviz.extraction.capture.forward import (
    Forward,
    check_capture,
    layer_sizes_of,
    run_forward,
)
from attnviz.extraction.capture.layer_change import ForwardChange
from attnviz.extraction.capture.memory import check_runs
from attnviz.extraction.capture.outputs import HeadOutputs
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.inputs.examples import examples_of, examples_with_targets
from attnviz.extraction.inputs.generate import Generated, GenerationSettings, generate_text
from attnviz.extraction.models import load
from attnviz.extraction.options import CaptureOptions, RecordOptions, check_options
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.cleanup import Cleanup

# Options for runs in which no attention needs to be stored, because only the model's outputs are
# used.
MINIMAL_CAPTURE = CaptureOptions(outline=True)


#: Options of `attnviz.extract` that are refused by functions whose result is not a record.
NOT_KEPT = ("generate", "layers", "dtype")


class Example:
    """One input of a model, on which the model can run several times.

    `encode` returns the encoded inputs as a batch, of which the example is the entry `index`.
    """

    def __init__(self, encoder: Encoder, encode: Callable[[], Batch], index: int) -> None:
        self.loaded = encoder.loaded
        self.encoder = encoder
        self._encode = encode
        self._index = index
        self.batch = self._encoded()

    @classmethod
    def one(cls, model: Any, inputs: Any, target: Any, options: RecordOptions) -> Example:
        """Return the only example of `inputs`. Raise ValueError if there are several examples."""
        examples, _ = examples_of(inputs)
        if len(examples) == 1:
            made, _ = cls.several(model, examples[0], target, None, options)
            if len(made) == 1:
                return made[0]
        raise ValueError("inputs has several examples. Pass one at a time, such as inputs[0].")

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
    ) -> tuple[list[Example], bool]:
        """Return the examples in `inputs`, and whether `inputs` is a list or has several examples.

        If `settings` are passed, each example is encoded as a prompt for a generation.
        """
        check_options(options)
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        encoder = Encoder(loaded, options)
        examples, many = examples_with_targets(inputs, target, decoder_input_ids)
        made: list[Example] = []
        for number, example in enumerate(examples):
            encode = partial(encoder.encode, *example, settings, number=number)
            made += cls._of_batch(encoder, encode)
        return made, many or len(made) > 1

    @classmethod
    def _of_batch(cls, encoder: Encoder, encode: Callable[[], Batch]) -> list[Example]:
        return [cls(encoder, encode, index) for index in range(encode().size)]

    def other_examples(self, inputs: Any) -> list[Example]:
        """Return the examples in `inputs`, for the same model.

        In an encoder-decoder model, the new examples have the `decoder_input_ids` of this example.
        """
        ids = self.batch.arguments.get("decoder_input_ids")
        made: list[Example] = []
        for example in examples_of(inputs)[0]:
            encode = partial(self.encoder.encode, example, None, ids)
            made += self._of_batch(self.encoder, encode)
        return made

    def _encoded(self) -> Batch:
        """Return the encoded example without padding."""
        return split_examples(self._encode())[self._index]

    def generated(
        self,
        settings: GenerationSettings,
        *,
        watch: Callable[[Cleanup], None] | None = None,
    ) -> Generated:
        """Generate text with the example as the prompt. `watch` is as for `generate_text`."""
        return generate_text(self.loaded, self._encoded(), settings, watch=watch)

    def with_generated_text(self, generated: Generated, method: str) -> Example:
        """Return an example whose input ends with a generated text.

        `method` describes how the text was generated.
        """

        def encode() -> Batch:
            batch = self._encoded()
            self.encoder.add_generated(batch, generated, method)
            return batch

        return Example(self.encoder, encode, 0)

    def forward(
        self,
        options: CaptureOptions,
        change: ForwardChange | None,
        logits: int | None = None,
        observe: Observer | None = None,
    ) -> Forward:
        """Run the model once on the example, with the changes `change` of its attention.

        The model returns logits for at least the last `logits` tokens. None means 1. `observe` gets
        each attention call after its output was changed.
        """
        # A run adds predictions and notes to its batch, so each run needs a new batch.
        self.batch = self._encoded()
        return run_forward(
            self.loaded,
            self.batch,
            options=options,
            changes=[change] if change else (),
            logits=logits,
            observe=observe,
        )

    def check_memory(
        self, options: CaptureOptions, settings: GenerationSettings | None = None
    ) -> None:
        """Raise MemoryError if the record of the example would need more than the free memory.

        With `settings`, the record of the longest text that can be generated is checked.
        """
        check_capture(
            self.loaded,
            self.batch,
            None if settings is None else settings.max_tokens,
            options=options,
        )

    def check_runs(
        self,
        doing: str,
        *,
        copies: int = 2,
        kept: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """Raise MemoryError if a batch with copies of the example would need too much memory.

        `doing` describes the computation in the message. `copies` is the number of copies in one
        batch. The default is the smallest number that `copies_per_batch` returns. `kept` is a
        function of the number of tokens that returns the number of vectors of the model's width
        that are stored per token and layer.
        """
        sizes = layer_sizes_of(self.loaded, self.batch)
        eager = getattr(self.loaded.model.config, "_attn_implementation", None) == "eager"
        check_runs(sizes, doing, copies=copies, num_kept=kept, eager=eager)

    def record(
        self, forward: Forward, options: CaptureOptions, outputs: HeadOutputs | None = None
    ) -> AttentionRecord:
        """Return the record of `forward`, which was run with `options`.

        `forward` must be the last run on this example, because each run replaces `batch`. `outputs`
        observed the gates of heads during this run. If `outputs` is None, the record has no
        gates.
        """
        [record] = records_of_forward(
            self.encoder, self.batch, forward, options=options, outputs=outputs
        )
        return record


def answering_stack(record: AttentionRecord) -> AttentionStack:
    """Return the stack whose queries are the tokens after which answers are read.

    This is the decoder of an encoder-decoder model, and otherwise the first stack.
    """
    stacks = record.stacks
    return stacks["decoder" if "decoder" in stacks else record.stack().name]
