"""Weights and predictions of generated text equal those of the steps of `model.generate`."""

from __future__ import annotations

import copy
import logging
import types
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, pipeline

from attnviz import demos
from attnviz.extraction import extract
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.inputs.generate import generate_text, read_generation_settings
from attnviz.extraction.models import load
from models.interrupts import state_of
from models.make_models import make_model
from models.steps import IDS, assert_predictions, own_steps, stitched
from models.tiny import built


@pytest.fixture(scope="module")
def llama() -> Any:
    return make_model("llama")


def with_varied_text(kind: str) -> Any:
    """Return a tiny model that generates no end token and rarely repeats a token."""
    # T5's cache has as many layers as the encoder. The decoder has 3, so the encoder needs 3, too.
    model = make_model(kind, **({"num_layers": 3} if kind == "t5" else {}))
    model.generation_config.update(
        eos_token_id=None, forced_eos_token_id=None, repetition_penalty=9.0
    )
    return model


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "gemma2", "gpt_oss"])
def test_rows_of_a_decoder_are_those_of_its_steps(kind: str, implementation: str) -> None:
    model = make_model(kind)
    own = own_steps(model, 12)
    if kind != "gpt_oss":
        # Old versions of transformers ignore the soft cap of Gemma 2 with sdpa.
        model.set_attn_implementation("eager" if kind == "gemma2" else implementation)
    record = extract(model, IDS, generate=12)
    stack = record.stacks["self"]
    assert record.tokens.ids == tuple(own.sequences[0].tolist())
    assert len(record.tokens) == 20
    for layer in range(stack.num_layers):
        expected = stitched(own.attentions, layer, 19, None)
        weights = stack.weights(layer=layer)
        # No step reads the last token, so `expected` has no row for this token.
        assert np.abs(weights[:, :19, :19] - expected).max() < 1e-4
        assert expected.max(axis=-1).mean() > 0.2
        assert not weights[:, :19, 19].any()
    assert_predictions(record.tokens, own, 8)
    assert record.tokens.predictions[-1].row == 19
    assert record.tokens.sequence == (0,) * 8 + (1,) * 12
    assert "The last 12 tokens were generated greedily." in record.notes


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_rows_of_an_encoder_decoder_are_those_of_its_steps(kind: str) -> None:
    model = with_varied_text(kind)
    own = own_steps(model, 9)
    record = extract(model, IDS, generate=9)
    count = own.sequences.shape[1] - 1
    assert count == 9
    for layer in range(3):
        for name, steps, num_keys in (
            ("decoder", own.decoder_attentions, None),
            ("cross", own.cross_attentions, 8),
        ):
            weights = record.stacks[name].weights(layer=layer)
            expected = stitched(steps, layer, count, num_keys)
            assert np.abs(weights - expected).max() < 1e-4
    encoder = own.encoder_attentions[0][0].numpy()
    assert np.abs(record.stacks["encoder"].weights(layer=0) - encoder).max() < 1e-4
    tokens = record.stacks["cross"].query_tokens
    assert tokens is record.stacks["decoder"].query_tokens
    assert tokens.ids == tuple(own.sequences[0, :-1].tolist())
    assert_predictions(tokens, own, 1)
    # The decoder did not read the last token, so this token has no row.
    assert [prediction.row for prediction in tokens.predictions] == [*range(1, count), None]
    assert not record.stacks["encoder"].query_tokens.predictions
    assert record.notes[-1] == f"The decoder's text, {count} tokens, was generated greedily."


@pytest.mark.parametrize("kind", ["llama", "bart"])
def test_a_generation_ends_with_the_end_token(kind: str) -> None:
    model = with_varied_text(kind)
    prefix = 1 if kind == "bart" else 8
    whole = own_steps(model, 10).sequences[0, prefix:].tolist()
    assert len(set(whole)) == 10
    model.generation_config.eos_token_id = whole[5]
    record = extract(model, IDS, generate=10)
    tokens = record.stack("cross" if kind == "bart" else "self").query_tokens
    assert [prediction.token.id for prediction in tokens.predictions] == whole[:6]
    assert len(tokens) == (6 if kind == "bart" else 14)
    assert "6 tokens" in record.notes[-1]


def test_a_target_is_predicted_as_a_generated_text_is() -> None:
    model, tokenizer = demos.load("encoder-decoder")
    arguments = {"inputs": "Sunday, 17 November 2019", "tokenizer": tokenizer}
    generated = extract(model, **arguments, generate=20).stack("cross").query_tokens
    tokens = extract(model, **arguments, target="2019-11-17").stack("cross").query_tokens
    assert tokens == generated
    # The model gives the first digit of 1999 a low probability.
    other = extract(model, **arguments, target="1999-11-17").stack("cross").query_tokens
    first = other.predictions[0]
    assert first.token.text == "1"
    assert first.token.probability < 0.01
    assert first.candidates[0].text == "2"
    assert sum(candidate.probability for candidate in first.candidates) > 0.99


def test_a_target_after_a_prompt_has_the_models_probabilities(
    llama: Any, byte_tokenizer: Any
) -> None:
    prompt, answer = "The cat sat", " on the mat"
    record = extract(llama, prompt, target=answer, tokenizer=byte_tokenizer)
    ids = [byte_tokenizer(text)["input_ids"] for text in (prompt, answer)]
    with torch.no_grad():
        logits = llama(torch.tensor([ids[0] + ids[1]])).logits[0].double()
    assert [prediction.token.id for prediction in record.tokens.predictions] == ids[1]
    for position, prediction in enumerate(record.tokens.predictions, start=len(ids[0])):
        # The query at `position - 1` predicts the token at `position`.
        assert prediction.query == position - 1
        expected = torch.softmax(logits[position - 1], dim=-1)[prediction.token.id]
        assert prediction.token.probability == pytest.approx(float(expected), abs=1e-5)


def test_prompts_of_a_list_and_of_a_batch_are_continued_alike(
    llama: Any, byte_tokenizer: Any
) -> None:
    texts = ["The cat sat on the mat.", "A dog", "hello"]
    alone = [extract(llama, text, tokenizer=byte_tokenizer, generate=5) for text in texts]
    listed = extract(llama, texts, tokenizer=byte_tokenizer, generate=5, progress=False)
    for side in ("left", "right"):
        encoded = byte_tokenizer(texts, return_tensors="pt", padding=True, padding_side=side)
        padded = extract(llama, encoded, tokenizer=byte_tokenizer, generate=5)
        for one, two, three in zip(alone, listed, padded, strict=True):
            assert one.tokens.ids == two.tokens.ids == three.tokens.ids
            weights = one.stacks["self"].weights(layer=2)
            assert np.array_equal(two.stacks["self"].weights(layer=2), weights)
            assert np.abs(three.stacks["self"].weights(layer=2) - weights).max() < 1e-5


SMALL = {"vocab_size": 400, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize(
    ("name", "config", "reads_later"),
    [
        ("XLNetLMHeadModel", {"d_model": 48, "n_layer": 2, "n_head": 4, "d_inner": 64}, True),
        ("XLMWithLMHeadModel", {"emb_dim": 48, "n_layers": 2, "n_heads": 4}, True),
        ("FlaubertWithLMHeadModel", {"emb_dim": 48, "n_layers": 2, "n_heads": 4}, True),
        ("XLMWithLMHeadModel", {"emb_dim": 48, "n_layers": 2, "n_heads": 4, "causal": True}, False),
        ("BloomForCausalLM", {"hidden_size": 48, "n_layer": 2, "n_head": 4}, False),
        ("MptForCausalLM", {"d_model": 48, "n_layers": 2, "n_heads": 4}, False),
    ],
)
@pytest.mark.parametrize("option", ["generate", "target"])
def test_a_text_whose_tokens_read_later_ones_is_refused(
    name: str, config: dict[str, Any], reads_later: bool, option: str, byte_tokenizer: Any
) -> None:
    """Weights of such a text are not those of the steps in which the model wrote it."""
    model = built(name, SMALL | config).train()
    options: dict[str, Any] = {"generate": 2} if option == "generate" else {"target": " sat"}
    before = state_of([model])
    if reads_later:
        with pytest.raises(ValueError, match=f"^{option}: {name} cannot produce text"):
            extract(model, "The cat", tokenizer=byte_tokenizer, **options)
    else:
        record = extract(model, "The cat", tokenizer=byte_tokenizer, **options)
        assert record.tokens.predictions
        assert not np.triu(record.stacks["self"].weights(layer=1), 1).any()
    assert state_of([model]) == before


def padded_batch(side: str) -> dict[str, torch.Tensor]:
    """Return encoded prompts of 8 and 5 tokens, padded on a side."""
    short, padding = IDS[:, :5], torch.zeros(1, 3, dtype=torch.long)
    parts = [padding, short] if side == "left" else [short, padding]
    ids = torch.cat([IDS, torch.cat(parts, dim=1)])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("GPT2LMHeadModel", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64}),
        ("GPTBigCodeForCausalLM", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64}),
        (
            "GPTNeoForCausalLM",
            {
                "hidden_size": 48,
                "num_layers": 2,
                "num_heads": 4,
                "attention_types": [[["global", "local"], 1]],
                "window_size": 4,
                "max_position_embeddings": 64,
            },
        ),
    ],
)
def test_texts_after_padding_are_those_of_the_whole_batch(
    name: str, config: dict[str, Any]
) -> None:
    special = {"vocab_size": 400, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = built(name, config | special)
    encoded = padded_batch("left")
    own = model.generate(**encoded, max_new_tokens=6, do_sample=False)
    for record, row, padding in zip(
        extract(model, encoded, generate=6), own.tolist(), (0, 3), strict=True
    ):
        assert list(record.tokens.ids) == row[padding:]
        assert not [note for note in record.notes if "padding" in note]


def test_a_note_says_that_padding_would_change_the_text(llama: Any) -> None:
    config = {"vocab_size": 400, "d_model": 48, "decoder_layers": 2, "decoder_attention_heads": 4}
    config |= {"decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0}
    counting = built("BartForCausalLM", config | {"is_encoder_decoder": False})
    counting.generation_config.eos_token_id = counting.generation_config.forced_eos_token_id = None
    options = {"max_new_tokens": 6, "do_sample": False}
    for model, side in ((counting, "left"), (llama, "right")):
        encoded = padded_batch(side)
        own = model.generate(**encoded, **options)[1, 8:].tolist()
        alone = model.generate(IDS[:, :5], attention_mask=torch.ones(1, 5), **options)[0]
        whole, short = extract(model, encoded, generate=dict(options))
        assert list(short.tokens.ids) == alone.tolist()
        assert own != alone[5:].tolist()
        assert any("generated alone, without padding" in note for note in short.notes)
        assert not [note for note in whole.notes if "padding" in note]
    sampled = extract(
        llama, padded_batch("left"), generate={"max_new_tokens": 3, "do_sample": True}
    )
    assert all("generated alone" in " ".join(record.notes) for record in sampled)


def test_sampling_follows_the_seed(llama: Any) -> None:
    options = {"max_new_tokens": 12, "do_sample": True, "temperature": 3.0, "top_k": 0}
    torch.manual_seed(5)
    record = extract(llama, IDS, generate=options)
    torch.manual_seed(5)
    own = own_steps(llama, 12, IDS, **options)
    assert_predictions(record.tokens, own, 8)
    torch.manual_seed(6)
    assert extract(llama, IDS, generate=options).tokens.ids != record.tokens.ids
    assert "generated by sampling" in record.notes[-1]


def test_a_beam_search_returns_the_models_own_text(llama: Any) -> None:
    record = extract(llama, IDS, generate={"max_new_tokens": 7, "num_beams": 3})
    with torch.no_grad():
        own = llama.generate(IDS, max_new_tokens=7, num_beams=3, do_sample=False)[0].tolist()
    assert record.tokens.ids == tuple(own)
    assert [prediction.token.id for prediction in record.tokens.predictions] == own[8:]
    assert "generated by a beam search with 3 beams" in record.notes[-1]


@pytest.mark.parametrize("ending", ["assistant", "user"])
def test_a_chat_is_continued_or_answered_as_in_a_pipeline(
    ending: str, llama: Any, byte_tokenizer: Any
) -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": ending, "content": "The dog"}]
    read: list[list[int]] = []
    # A pipeline changes the padding side of its tokenizer, and other tests use this tokenizer.
    pipe = pipeline("text-generation", llama, tokenizer=copy.deepcopy(byte_tokenizer))
    handle = llama.register_forward_pre_hook(
        lambda _, __, kwargs: read.append(kwargs["input_ids"][0].tolist()), with_kwargs=True
    )
    pipe(messages, max_new_tokens=2, do_sample=False)
    handle.remove()
    prompt = read[0]
    for model in (llama, pipe):
        record = extract(model, messages, tokenizer=byte_tokenizer, generate=2)
        assert list(record.tokens.ids or ())[: len(prompt)] == prompt
        assert len(record.tokens) == len(prompt) + 2
    with_target = extract(llama, messages, tokenizer=byte_tokenizer, target=" sat")
    assert list(with_target.tokens.ids or ())[: len(prompt)] == prompt
    assert "".join(record.tokens[: len(prompt)]).endswith(
        "The·dog" if ending == "assistant" else "<|assistant|>"
    )
    # Without an answer, the message is complete.
    closed = extract(llama, messages, tokenizer=byte_tokenizer)
    assert "".join(closed.tokens).endswith("The·dog</s>")


def even(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Logits processor that allows only even ids."""
    return scores.masked_fill(torch.arange(scores.shape[-1]) % 2 == 1, -torch.inf)


def second_best(model: Any, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """Generate text like `model.generate`: at each step, the token with the second-best score."""
    done = torch.zeros(1, dtype=torch.bool)
    while not done.all():
        with torch.no_grad():
            logits = model(input_ids=input_ids, use_cache=False).logits[:, -1]
        scores = options["logits_processor"](input_ids, logits)
        input_ids = torch.cat([input_ids, scores.topk(2).indices[:, 1:]], dim=1)
        done = options["stopping_criteria"](input_ids, None)
    return input_ids


def test_a_text_of_the_callers_own_loop(llama: Any) -> None:
    options = {"max_new_tokens": 6, "custom_generate": second_best}
    own = llama.generate(IDS, attention_mask=torch.ones_like(IDS), **options)[0].tolist()
    record = extract(llama, IDS, generate=options)
    assert list(record.tokens.ids) == own
    assert [prediction.token.id for prediction in record.tokens.predictions] == own[8:]
    for prediction in record.tokens.predictions:
        assert prediction.token.id == prediction.candidates[1].id


def test_a_text_whose_tokens_are_chosen_together_is_refused(llama: Any) -> None:
    def in_blocks(_model: Any, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
        options["logits_processor"](input_ids, torch.zeros(1, 4, 400))
        return torch.cat([input_ids, input_ids[:, :4]], dim=1)

    with pytest.raises(NotImplementedError, match=r"several tokens at once.*pass its ids"):
        extract(llama, IDS, generate={"max_new_tokens": 4, "custom_generate": in_blocks})


#: Settings of `generate` that change which tokens are generated, or what `generate` returns.
SETTINGS: dict[str, Any] = {
    "beams": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
    "beams as a dictionary": {"num_beams": 3, "return_dict_in_generate": True},
    "beams with sampling": {"num_beams": 3, "do_sample": True},
    "outputs": {"return_dict_in_generate": True, "output_attentions": True, "output_scores": True},
    "allowed tokens": {"prefix_allowed_tokens_fn": lambda _, ids: [5, 6, 10 + ids.shape[-1]]},
    "processor": {"logits_processor": [even]},
    "bad words": {"bad_words_ids": [[7], [31], [12]]},
    "suppressed": {"suppress_tokens": [7, 31], "begin_suppress_tokens": [12]},
    "forced": {"forced_bos_token_id": 17, "forced_eos_token_id": 2},
    "guidance": {"guidance_scale": 1.5},
    "no cache": {"use_cache": False},
    "length": {"max_new_tokens": None, "max_length": 14},
    "several end tokens": {"eos_token_id": [2, *range(100, 200)], "max_new_tokens": 20},
    "padding": {"pad_token_id": 3},
    "time": {"max_time": 1000.0},
    "looked up": {"prompt_lookup_num_tokens": 3},
    "assistant": {"assistant_model": None},
    "streamer": {"streamer": types.SimpleNamespace(put=lambda _: None, end=lambda: None)},
    "configuration": {
        "max_new_tokens": None,
        "generation_config": GenerationConfig(max_new_tokens=7, num_beams=2),
    },
    "start": {"decoder_start_token_id": 9},
    "list of starts": {"decoder_start_token_id": [9], "num_beams": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart"])
def test_a_record_has_the_ids_of_the_call_with_the_same_settings(kind: str, name: str) -> None:
    options = {"max_new_tokens": 8} | SETTINGS[name]
    options = {option: value for option, value in options.items() if value is not None}
    if name == "assistant":
        options["assistant_model"] = make_model(kind)
    model = make_model(kind)
    starts: list[list[int]] = []

    def look(_module: Any, _args: Any, kwargs: Any) -> None:
        # The negative prompt of guidance is a positional argument.
        ids = kwargs.get("decoder_input_ids" if kind == "bart" else "input_ids")
        starts.extend([] if ids is None else ids[:1].tolist())

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    torch.manual_seed(1)
    own = model.generate(IDS, attention_mask=torch.ones_like(IDS), **options)
    handle.remove()
    own = (own if isinstance(own, torch.Tensor) else own.sequences)[0].tolist()
    if kind == "bart" and len(own) == 1:
        pytest.skip(f"this version of transformers generates no text with {name}")
    torch.manual_seed(1)
    record = extract(model, IDS, generate=options)
    tokens = record.stack("cross" if kind == "bart" else "self").query_tokens
    assert list(tokens.ids) == (own[:-1] if kind == "bart" else own)
    # Candidates of a faster model follow the start in the first call of the decoder.
    start = starts[0]
    if name == "assistant":
        start = start[: 1 if kind == "bart" else 8]
    assert own[: len(start)] == start
    assert [prediction.token.id for prediction in tokens.predictions] == own[len(start) :]
    eager = make_model(kind, "eager")
    ids = torch.tensor([tokens.ids])
    with torch.no_grad():
        read = (
            {"decoder_input_ids": ids, "input_ids": IDS} if kind == "bart" else {"input_ids": ids}
        )
        outputs = eager(**read, output_attentions=True)
    if kind == "bart":
        expected = {"decoder": outputs.decoder_attentions, "cross": outputs.cross_attentions}
    else:
        expected = {"self": outputs.attentions}
    for stack, layers in expected.items():
        for number, weights in enumerate(layers):
            difference = record.stacks[stack].weights(layer=number) - weights[0].numpy()
            assert np.abs(difference).max() < 1e-4


@pytest.mark.parametrize("kind", ["llama", "bart"])
@pytest.mark.parametrize("where", ["argument", "model", "number"])
def test_stop_strings_end_a_text(kind: str, where: str, byte_tokenizer: Any) -> None:
    model = with_varied_text(kind)
    whole = extract(model, IDS, generate=20, tokenizer=byte_tokenizer)
    stack = "cross" if kind == "bart" else "self"
    texts = [prediction.token.id for prediction in whole.stack(stack).query_tokens.predictions]
    stops = [byte_tokenizer.decode([token]) for token in texts if 3 <= token < len(byte_tokenizer)]
    options: Any = {"max_new_tokens": 20, "stop_strings": stops[1]}
    own = model.generate(
        IDS, attention_mask=torch.ones_like(IDS), **options, tokenizer=byte_tokenizer
    )
    if where != "argument":
        model.generation_config.stop_strings = options.pop("stop_strings")
    generate = 20 if where == "number" else options
    record = extract(model, IDS, generate=generate, tokenizer=byte_tokenizer)
    tokens = record.stack(stack).query_tokens
    text = [prediction.token.id for prediction in tokens.predictions]
    assert text == own[0, 1 if kind == "bart" else 8 :].tolist()
    assert len(text) < 20


def test_settings_of_the_callers_own_call_apply_unless_generate_names_them(llama: Any) -> None:
    generation = {
        "generation_config": GenerationConfig(max_new_tokens=3, repetition_penalty=9.0),
        "num_beams": 2,
        "bad_words_ids": [[7]],
    }
    batch = Batch({"input_ids": IDS}, 1, generation=generation)
    for generate, own in (
        (5, {"max_new_tokens": 5, "num_beams": 1, "bad_words_ids": [[7]]}),
        ({"num_beams": 3}, {"max_new_tokens": 3, "num_beams": 3, "bad_words_ids": [[7]]}),
        (
            GenerationConfig(max_new_tokens=6, bad_words_ids=[[9]]),
            {"max_new_tokens": 6, "num_beams": 2, "bad_words_ids": [[9]]},
        ),
    ):
        settings = read_generation_settings(generate, llama).for_batch(batch)
        generated = generate_text(load(llama), batch, settings)
        if not isinstance(generate, GenerationConfig):
            own["repetition_penalty"] = 9.0
        expected = llama.generate(IDS, attention_mask=torch.ones_like(IDS), **own)
        assert generated.ids.tolist() == expected[0].tolist()
        assert settings.max_new_tokens == own["max_new_tokens"]
        beams = f"by a beam search with {own['num_beams']} beams"
        assert settings.method == ("greedily" if own["num_beams"] == 1 else beams)


def test_the_decoder_starts_with_ids_from_the_caller() -> None:
    model = make_model("bart")
    record = extract(model, IDS, decoder_input_ids=[2, 30, 40], generate=5)
    tokens = record.stack("cross").query_tokens
    own = own_steps(model, 5, decoder_input_ids=torch.tensor([[2, 30, 40]]))
    assert tokens.ids == tuple(own.sequences[0, :-1].tolist())
    assert_predictions(tokens, own, 3)


@pytest.mark.parametrize("kind", ["llama", "bart"])
@pytest.mark.filterwarnings("error")
def test_a_number_of_tokens_is_generated_greedily_despite_the_models_settings(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By default, messages of transformers do not reach the root logger, which `caplog` reads.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = with_varied_text(kind).train()
    own = own_steps(model, 6)
    settings: dict[str, Any] = {"do_sample": True, "temperature": 5.0, "top_p": 0.9, "top_k": 20}
    settings |= {"max_length": 9, "min_length": 30, "pad_token_id": None, "num_beams": 2}
    model.generation_config.update(**settings)
    before = state_of([model])
    caplog.clear()
    record = extract(model, IDS, generate=np.int64(6))
    # The caller did not choose these settings, so transformers must not warn about them.
    assert caplog.messages == []
    assert state_of([model]) == before
    tokens = record.stack("cross" if kind == "bart" else "self").query_tokens
    assert_predictions(tokens, own, 1 if kind == "bart" else 8)


def test_the_start_token_before_ids_from_the_caller_counts_as_one_of_them() -> None:
    """transformers puts the start token before ids that do not start with it."""
    model = make_model("bart")
    end = 7
    model.generation_config.update(eos_token_id=end, forced_eos_token_id=None, min_length=8)
    model.final_logits_bias[0, end] = 1e4
    ids = torch.tensor([[30, 40]])
    own = model.generate(IDS, decoder_input_ids=ids, max_new_tokens=5, num_beams=1)[0].tolist()
    tokens = extract(model, IDS, decoder_input_ids=ids, generate=5).stack("cross").query_tokens
    assert (*tokens.ids, tokens.predictions[-1].token.id) == tuple(own)
    # 61 ids after the start token leave 2 of 64 positions. The last new token needs none.
    ids = torch.full((1, 61), 30)
    assert len(extract(model, IDS, decoder_input_ids=ids, generate=3).stack("decoder").query_tokens)
    with pytest.raises(ValueError, match=r"62 of them used\. Pass at most 3"):
        extract(model, IDS, decoder_input_ids=ids, generate=4)


def test_a_model_without_a_language_head_predicts_nothing(llama: Any, byte_tokenizer: Any) -> None:
    record = extract(llama.model, "The cat", target=" sat", tokenizer=byte_tokenizer)
    assert not record.tokens.predictions
    assert "LlamaModel has no language head: its predictions are not known." in record.notes
    with pytest.raises(ValueError, match=r"LlamaModel cannot generate text.*AutoModelForCausalLM"):
        extract(llama.model, IDS, generate=4)


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        ("llama", {"generate": 0}, ValueError, "generate must be at least 1 token; got 0"),
        ("gpt2", {"generate": 57}, ValueError, "57 .* too many.*64 positions, 8 .*at most 56"),
        ("gpt2", {"generate": {"max_length": 65}}, ValueError, "57 .*Pass at most max_length=64"),
        ("llama", {"generate": {"do_sample": True}}, ValueError, "number of tokens is missing"),
        (
            "llama",
            {"generate": {"max_length": 12, "num_return_sequences": 2, "num_beams": 2}},
            ValueError,
            "num_return_sequences=2 .*Pass num_return_sequences=1",
        ),
        (
            "llama",
            {"generate": {"max_new_tokens": 3, "stop_strings": ["a"]}},
            ValueError,
            "stop strings.*pass the model's tokenizer",
        ),
        ("llama", {"generate": 4, "target": " sat"}, ValueError, "^generate: .*already sets it"),
        ("bert", {"generate": 4}, ValueError, "cannot generate text.*Remove generate"),
        (
            "llama",
            {"inputs": {"inputs_embeds": torch.ones(1, 3, 48)}, "generate": 4},
            ValueError,
            "inputs_embeds have no ids.*Pass input_ids",
        ),
    ],
)
def test_impossible_generations_are_refused(
    kind: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        extract(make_model(kind), **{"inputs": IDS} | options)
