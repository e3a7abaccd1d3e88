"""SmolLM2, a trained language model: weights, roles, effects, generated text, and a page.

All tests of the model are in this file, because loading it takes 15 seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnviz as av
from browser.pages import says, table
from model_types.checkpoints import CHAT, LONG_TEXT, SENTENCE, checked
from model_types.reference import eager_copy
from models.real_checkpoints import smollm2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from browser.pages import Show

pytestmark = pytest.mark.slow

# The tokenizer splits the first word of these texts, so that the sink is in the word of the next
# token.
NAMES = (
    *("Oscar", "Xavier", "Ingrid", "Gustav", "Wolfgang", "Yvonne"),
    *("Zelda", "Fatima", "Dmitri", "Bartholomew", "Cordelia", "Leopold"),
)
ENDS = (
    "gave the book to the teacher because the lesson was over.",
    "walked to the store and bought bread for the family.",
    "watched the boats until the sun went down over the harbour.",
)
SPLIT = [f"{name} {ENDS[index % len(ENDS)]}" for index, name in enumerate(NAMES)]
WHOLE = [f"Today {text}" for text in SPLIT]


@pytest.fixture(scope="module")
def model_and_tokenizer() -> tuple[Any, Any]:
    return smollm2()


@pytest.fixture(scope="module")
def model(model_and_tokenizer: tuple[Any, Any]) -> Any:
    return model_and_tokenizer[0]


@pytest.fixture(scope="module")
def tokenizer(model_and_tokenizer: tuple[Any, Any]) -> Any:
    return model_and_tokenizer[1]


def own(model: Any, tokenizer: Any, text: str) -> NDArray[np.float32]:
    """Return the weights that the eager model returns, (layers, heads, queries, keys)."""
    with torch.no_grad():
        outputs = eager_copy(model)(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    return np.stack([layer[0].numpy() for layer in outputs.attentions])


@pytest.mark.parametrize("text", [SENTENCE, LONG_TEXT], ids=["sentence", "long text"])
def test_all_weights_equal_those_of_the_eager_model(model: Any, tokenizer: Any, text: str) -> None:
    inputs = dict(tokenizer(text, return_tensors="pt"))
    record, comparison = checked(model, inputs)
    assert comparison.right
    assert comparison.unverified == {}
    assert record.stack().num_layers == 30
    length = inputs["input_ids"].shape[1]
    assert record.stack().weights(layer=29, head=8).shape == (length, length)
    assert length > 1000 or text == SENTENCE


@pytest.mark.parametrize("texts", [SPLIT, WHOLE], ids=["split first words", "whole first words"])
def test_sinks_are_not_subword_joiners(model: Any, tokenizer: Any, texts: list[str]) -> None:
    first_words = [tokenizer(text.split()[0]).input_ids for text in texts]
    assert all((len(ids) > 1) == (texts is SPLIT) for ids in first_words)
    # Heads that do little else than to rest on the sink, the first token.
    shares = [own(model, tokenizer, text)[:, :, 1:, 0].mean(axis=-1) for text in texts]
    rests = np.argwhere(np.mean(shares, axis=0) > 0.7)
    roles = av.head_statistics(model, texts, tokenizer=tokenizer, progress=False).roles()
    main = {(layer, head): role.name for layer, head, role in roles.main_roles()}
    of_sinks = [main.get((int(layer), int(head)), "") for layer, head in rests]
    assert len(of_sinks) > 60
    assert "subword joiner" not in of_sinks
    assert of_sinks.count("first token") > len(of_sinks) / 2


def test_effects_of_tokens_are_those_of_masked_columns(model: Any, tokenizer: Any) -> None:
    answer = (" Mary", " John")
    effects = av.token_effects(model, SENTENCE, answer=answer, tokenizer=tokenizer)
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    length = inputs.input_ids.shape[1]
    mary, john = (tokenizer(word).input_ids[0] for word in answer)
    lowest = torch.finfo(torch.float32).min

    def difference(hidden: int | None) -> float:
        mask = torch.full((length, length), lowest).triu(1)
        if hidden is not None:
            mask[hidden + 1 :, hidden] = lowest
        with torch.no_grad():
            logits = model(inputs.input_ids, attention_mask=mask[None, None]).logits[0, -1]
        return float(logits[mary] - logits[john])

    before = difference(None)
    expected = [difference(token) - before for token in range(length - 1)]
    # Each of the two has a rounding error, which the noise bounds. 270 heads add up to it.
    np.testing.assert_allclose(effects.values[:-1], expected, rtol=0, atol=10 * effects.noise)
    assert 1e4 * effects.noise < -min(expected)

    weights = own(model, tokenizer, SENTENCE)
    shares = []
    for key in range(length - 1):
        uniform = np.mean(1 / np.arange(key + 2, length + 1))
        mean = weights[:, :, key + 1 :, key].mean(axis=-1)
        shares.append(np.mean(mean - uniform > 0.3 * (1 - uniform)))
    assert effects.sink_shares is not None
    # A head at the threshold may be on the other side of it.
    np.testing.assert_allclose(effects.sink_shares[:-1], shares, rtol=0, atol=1.5 / 270)
    assert shares[0] > 0.5 > max(shares[1:])
    why = "so removing them changes more than removing a word"
    assert f"attention sinks, {why}: “When” (0)" in repr(effects)


def test_a_chat_is_generated_as_the_model_does_it(model: Any, tokenizer: Any) -> None:
    chat = list(CHAT)
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    wanted = model.generate(
        **prompt,
        max_new_tokens=10,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    record = av.extract(model, chat, tokenizer=tokenizer, generate=10, progress=False)
    assert record.tokens.ids == tuple(wanted.sequences[0].tolist())
    probabilities = [
        float(scores[0].softmax(-1)[prediction.token.id])
        for scores, prediction in zip(wanted.scores, record.tokens.predictions, strict=True)
    ]
    predicted = [prediction.token.probability for prediction in record.tokens.predictions]
    np.testing.assert_allclose(predicted, probabilities, rtol=0, atol=1e-4)

    # Without an answer, the tokens are the pieces of the chat as the template writes it.
    plain = av.extract(model, chat, tokenizer=tokenizer, progress=False).tokens
    written = tokenizer.apply_chat_template(chat, tokenize=False)
    encoded = tokenizer(written, return_offsets_mapping=True)
    assert plain.ids == tuple(encoded.input_ids)
    pieces = [written[start:end] for start, end in encoded.offset_mapping]
    assert "".join(pieces) == written
    shown = [piece.replace(" ", "·").replace("\n", "⏎") for piece in pieces]
    assert list(plain.text) == shown
    assert [piece for piece, special in zip(pieces, plain.special, strict=True) if special] == [
        piece for piece in pieces if piece in ("<|im_start|>", "<|im_end|>")
    ]


def test_a_page_has_the_weights_of_the_eager_model(show: Show, model: Any, tokenizer: Any) -> None:
    record = av.extract(model, SENTENCE, tokenizer=tokenizer, progress=False)
    expected = own(model, tokenizer, SENTENCE)
    # The head with the largest weight from the last token to "Mary".
    layer, head = np.unravel_index(expected[:, :, -1, 1].argmax(), expected.shape[:2])
    root = show(av.HeadView(record, layer=int(layer), heads=[int(head)], token=-1))
    says(root, "14 tokens · exact to 0.004")
    says(root, f"“·to” (13) attends most to “·Mary”: {expected[layer, head, -1, 1]:.2f}")
    lines = table(root)
    assert len(lines) > 14
    for line in lines:
        weight = expected[layer, head, int(line["query"]), int(line["key"])]
        assert float(line["weight"]) == pytest.approx(weight, abs=0.004)
