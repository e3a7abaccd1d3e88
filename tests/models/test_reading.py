"""Texts that are read in a batch have the weights that the model computes for each text alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from attnviz.corpus.batches import ReadText
from attnviz.corpus.reading import read_records
from attnviz.corpus.texts import Texts
from attnviz.extraction import extract
from attnviz.extraction.modules import attention_modules
from models.make_models import largest_error, make_model
from models.tiny import built, reference

TEXTS = [
    "The cat sat on the mat and looked at the dog.",
    "It was too tired.",
    "A date such as 3 May 2021.",
    "hello",
    "The animal didn't cross the street because it was too tired.",
    "user says hello",
    "the dog",
]
TARGETS = ["a dog", "it was too tired", "3 May", "cat", "the street", "hello user", "the cat sat"]
DECODERS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "bloom"]


class Forwards:
    """Context manager whose value is a list: the number of examples in each forward of a model."""

    def __init__(self, model: Any) -> None:
        self.sizes: list[int] = []
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = (*args, *(options.get(name) for name in ("input_ids", "pixel_values")))
        self.sizes.append(len(next(value for value in first if value is not None)))

    def __enter__(self) -> list[int]:
        return self.sizes

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


def read(model: Any, texts: Sequence[Any], **options: Any) -> list[ReadText]:
    return list(read_records(model, Texts(texts), range(len(texts)), **options))


def assert_own(kind: str, model: Any, tokenizer: Any, examples: list[ReadText]) -> None:
    """Compare each record with the model's own weights for the text alone, from eager attention."""
    for example in examples:
        inputs = dict(tokenizer(TEXTS[example.index], return_tensors="pt"))
        names = ("input_ids",) if kind == "gpt_oss" else ("input_ids", "attention_mask")
        inputs = {name: inputs[name] for name in names}
        if kind in ("bart", "t5"):
            target = tokenizer(text_target=TARGETS[example.index], return_tensors="pt")
            inputs["labels"] = target["input_ids"]
        assert largest_error(example.record, reference(model, inputs)) < 1e-4


@pytest.mark.parametrize("kind", ["bert", "albert", "roberta", *DECODERS, "bart", "t5"])
def test_texts_read_in_a_batch_have_their_own_weights(
    kind: str, request: pytest.FixtureRequest
) -> None:
    name = {"t5": "piece", "bart": "piece"}.get(kind, "byte" if kind in DECODERS else "word")
    tokenizer = request.getfixturevalue(f"{name}_tokenizer")
    model = make_model(kind)
    target = TARGETS if kind in ("bart", "t5") else None
    with Forwards(model) as sizes:
        examples = read(model, TEXTS, tokenizer=tokenizer, target=target, batch_size=6)
    # The first text is read alone, then the other six, then the shortest of the six as a check.
    assert sizes == [1, 6, 1]
    assert [example.index for example in examples] == list(range(7))
    assert_own(kind, model, tokenizer, examples)


def test_texts_that_affect_each_other_in_a_batch_are_read_alone(word_tokenizer: Any) -> None:
    model = make_model("bert")
    # Make texts affect each other: add to each embedding the mean over the whole batch, including
    # padding.
    model.bert.embeddings.register_forward_hook(
        lambda _, __, output: output + output.mean(dim=(0, 1), keepdim=True)
    )
    with Forwards(model) as sizes:
        examples = read(model, TEXTS, tokenizer=word_tokenizer, batch_size=6)
    # After the first text, the batch of six and the failed check, each of the six is read alone.
    assert sizes == [1, 6, 1, *[1] * 6]
    assert_own("bert", model, word_tokenizer, examples)


def test_texts_stay_alone_after_a_failed_check_although_one_of_them_fails(
    word_tokenizer: Any,
) -> None:
    model, num_forwards = make_model("bert"), 0
    model.bert.embeddings.register_forward_hook(
        lambda _, __, output: output + output.mean(dim=(0, 1), keepdim=True)
    )

    def fail_in_the_fourth_forward(*_: Any) -> None:
        nonlocal num_forwards
        num_forwards += 1
        if num_forwards == 4:
            raise ValueError("this text fails")

    model.register_forward_pre_hook(fail_in_the_fourth_forward)
    with (
        Forwards(model) as sizes,
        pytest.raises(ValueError, match=r"^texts\[\d\]: this text fails"),
    ):
        read(model, TEXTS + TEXTS[1:], tokenizer=word_tokenizer, batch_size=6)
    # The first forwards are as above. Then the first text that is read alone fails, before it is
    # counted. The other eleven are read alone, too.
    assert sizes == [1, 6, 1, *[1] * 11]


def test_texts_that_begin_to_change_each_other_are_an_error(word_tokenizer: Any) -> None:
    model, num_batches = make_model("bert"), 0

    def leak_after_the_first_batch(_: Any, args: tuple[Any, ...], output: Any) -> Any:
        nonlocal num_batches
        num_batches += len(output) > 1
        return output + output.mean(dim=(0, 1), keepdim=True) if num_batches > 1 else output

    model.bert.embeddings.register_forward_hook(leak_after_the_first_batch)
    with pytest.raises(
        ValueError, match=r"^batch_size: in a batch, the weights of texts\[\d\] differ"
    ):
        read(model, TEXTS, tokenizer=word_tokenizer, batch_size=3)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic"},
        {
            "rope_type": "longrope",
            "original_max_position_embeddings": 12,
            "short_factor": [1.0] * 6,
            "long_factor": [3.0] * 6,
        },
    ],
)
def test_positions_that_depend_on_the_longest_text(
    rope: dict[str, Any], byte_tokenizer: Any
) -> None:
    rope = {"rope_theta": 10_000.0, "factor": 2.0, **rope}
    model = make_model("llama", rope_parameters=rope, max_position_embeddings=12)
    with Forwards(model) as sizes:
        examples = read(model, TEXTS, tokenizer=byte_tokenizer, batch_size=6)
    lengths = [len(byte_tokenizer(text)["input_ids"]) for text in TEXTS]
    assert max(sizes) == sum(length <= 12 for length in lengths[1:]) > 1
    for example in examples:
        # Rotary frequencies depend on the longest text so far, so compare with a new model.
        new = make_model("llama", rope_parameters=dict(rope), max_position_embeddings=12)
        assert_own("llama", new, byte_tokenizer, [example])


def test_experts_with_a_capacity_for_all_texts_read_one_text_at_a_time(byte_tokenizer: Any) -> None:
    sizes = {"vocab_size": 400, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_heads": 4}
    layers = {"num_layers": 2, "num_decoder_layers": 2, "num_experts": 2, "expert_capacity": 4}
    tokens = {"decoder_start_token_id": 0, "pad_token_id": 0}
    config = transformers.SwitchTransformersConfig(**sizes, **layers, **tokens)
    model = built("SwitchTransformersForConditionalGeneration", config)
    with Forwards(model) as forwards:
        read(model, TEXTS, tokenizer=byte_tokenizer, target=TARGETS)
    assert forwards == [1] * len(TEXTS)


def test_a_decoder_without_a_padding_token(byte_tokenizer: Any) -> None:
    model = make_model("gpt2")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer.backend_tokenizer, padding_side="left"
    )
    assert tokenizer.pad_token_id is None
    model.config.pad_token_id = None
    with Forwards(model) as sizes:
        examples = read(model, TEXTS, tokenizer=tokenizer, target=TARGETS, batch_size=6)
    assert max(sizes) == 6
    for example in examples:
        assert example.record is not None
        tokens = example.record.tokens
        assert tokens.predictions[-1].token.text == tokens.text[-1]
        own = reference(model, {"input_ids": torch.tensor([tokens.ids])})
        assert largest_error(example.record, own) < 1e-4


def test_a_forward_that_does_not_fit_is_halved(word_tokenizer: Any) -> None:
    model = make_model("bert")

    def fail(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if len(options["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.register_forward_pre_hook(fail, with_kwargs=True)
    with Forwards(model) as sizes:
        examples = read(model, TEXTS, tokenizer=word_tokenizer, batch_size=6)
    assert [example.index for example in examples] == list(range(7))
    assert max(sizes) == 2


@pytest.mark.parametrize("ordered", [True, False])
def test_an_error_names_its_text_after_the_earlier_results(
    word_tokenizer: Any, *, ordered: bool
) -> None:
    model = make_model("bert")
    texts: list[Any] = [*TEXTS[:4], torch.tensor([[9999]]), *TEXTS[4:]]
    indices: list[int] = []
    reading = read_records(model, Texts(texts), range(8), tokenizer=word_tokenizer, ordered=ordered)
    with pytest.raises(ValueError, match=r"^texts\[4\]: inputs: token id 9999 is out of range"):
        indices.extend(example.index for example in reading)
    assert sorted(indices) == [0, 1, 2, 3]


def test_an_error_of_a_forward_names_its_text(word_tokenizer: Any) -> None:
    model = make_model("bert")
    bad = word_tokenizer(TEXTS[5], return_tensors="pt")["input_ids"][0, 1]

    def fail(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if bool((options["input_ids"][:, 1] == bad).any()):
            raise RuntimeError("a fault")

    model.register_forward_pre_hook(fail, with_kwargs=True)
    indices: list[int] = []
    reading = read_records(model, Texts(TEXTS), range(7), tokenizer=word_tokenizer)
    with pytest.raises(RuntimeError, match=r"^texts\[5\]: a fault"):
        indices.extend(example.index for example in reading)
    assert indices == [0, 1, 2, 3, 4]


def test_results_that_need_no_order_include_skipped_texts(word_tokenizer: Any) -> None:
    texts = [TEXTS[0], "", *TEXTS[1:], "the cat " * 200]
    reading = read_records(
        make_model("bert"), Texts(texts), range(9), tokenizer=word_tokenizer, ordered=False
    )
    by_index = {example.index: example for example in reading}
    assert sorted(by_index) == list(range(9))
    assert [by_index[at].skip_reason for at in (0, 1, 8)] == ["", "empty", "too long"]
    assert "tokens are too many" in by_index[8].reason


@pytest.mark.parametrize("example", range(4))
def test_an_example_of_a_padded_batch_whose_attention_differs_is_refused(
    example: int, word_tokenizer: Any, register: Any
) -> None:
    def own(*arguments: Any, **options: Any) -> Any:
        output, weights = sdpa_attention_forward(*arguments, **options)
        output[example] *= 1.5
        return output, weights

    model = make_model("bert")
    model.set_attn_implementation(register("own", own))
    batch = word_tokenizer(TEXTS[:4], return_tensors="pt", padding=True)
    with pytest.raises(NotImplementedError, match="is not softmax"):
        extract(model, batch)


class OwnAttention(torch.nn.Module):
    """Module whose class name contains "Attention". `last` is a submodule, such as a softmax."""

    def __init__(self, last: torch.nn.Module) -> None:
        super().__init__()
        self.weight, self.last = torch.nn.Parameter(torch.zeros(1)), last


def test_a_model_is_inspected_again_after_modules_were_swapped() -> None:
    parts: Any = [OwnAttention(torch.nn.Softmax(-1)), OwnAttention(torch.nn.Identity())]
    model = torch.nn.ModuleList(parts)
    assert [entry.softmax for entry in attention_modules(model)] == [True, False]
    parts[0].last, parts[1].last = parts[1].last, parts[0].last
    assert [entry.softmax for entry in attention_modules(model)] == [False, True]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class DecoratedAttention(OwnAttention):
    """Module whose ``forward`` has two decorators, as most have since transformers 5.24."""

    @decorated
    @decorated
    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits, dim=-1)


def test_the_code_under_decorators_is_read() -> None:
    model = DecoratedAttention(torch.nn.Identity())
    assert [entry.softmax for entry in attention_modules(model)] == [True]
