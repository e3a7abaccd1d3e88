"""A generation that is watched: its rows, its predictions and its record, step by step."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from tqdm.auto import tqdm
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz import AttentionRecord, LiveGeneration, demos, generate_live
from attnviz.extraction import extract
from models.steps import IDS, assert_predictions, own_steps, stitched
from models.tiny import built

pytestmark = pytest.mark.models

DECODERS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "bloom"]


class Forwards:
    """Counts the forwards of a model, with how many tokens each read."""

    def __init__(self, model: Any) -> None:
        self.lengths: list[int] = []
        self.before: Callable[[int], None] = lambda _: None
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _module: Any, args: Any, kwargs: Any) -> None:
        self.lengths.append((kwargs.get("input_ids", args[0] if args else None)).shape[1])
        self.before(len(self.lengths))


def halted(model: Any) -> tuple[threading.Event, threading.Event]:
    """Have a generation wait at its sixth forward: set when it does, and to set that it goes on."""
    reached, go_on = threading.Event(), threading.Event()

    def halt(number: int) -> None:
        if number == 6 and threading.current_thread().name == "attnviz generation":
            reached.set()
            go_on.wait(60)

    Forwards(model).before = halt
    return reached, go_on


def state_of(model: Any) -> Any:
    """What a generation must leave as it was."""
    return (
        [module.training for module in model.modules()],
        [len(module._forward_hooks) for module in model.modules()],
        [len(module._forward_pre_hooks) for module in model.modules()],
        model.config.to_dict(),
        model.config._attn_implementation,
        model.generation_config.to_dict(),
        AttentionInterface.__dict__["get_interface"],
    )


def assert_same(found: AttentionRecord, expected: AttentionRecord) -> None:
    """Hold a record against another one."""
    assert found.stacks.keys() == expected.stacks.keys()
    for name, stack in expected.stacks.items():
        other = found.stacks[name]
        assert other.layers == stack.layers
        assert (other.query_tokens.text, other.query_tokens.ids, other.query_tokens.sequence) == (
            stack.query_tokens.text,
            stack.query_tokens.ids,
            stack.query_tokens.sequence,
        )
        for layer in stack.layers:
            assert other.kept_heads(layer) == stack.kept_heads(layer)
            assert np.abs(other.weights(layer=layer) - stack.weights(layer=layer)).max() < 1e-4
        pairs = zip(other.query_tokens.predictions, stack.query_tokens.predictions, strict=True)
        for one, two in pairs:
            assert (one.query, one.row, one.token.text) == (two.query, two.row, two.token.text)
            assert one.token.probability == pytest.approx(two.token.probability, abs=1e-4)
            assert [each.id for each in one.candidates] == [each.id for each in two.candidates]
    assert (found.notes, found.model) == (expected.notes, expected.model)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", DECODERS)
def test_rows_are_those_of_the_models_own_steps(
    kind: str, implementation: str, make_model: Callable[..., Any]
) -> None:
    model = make_model(kind)
    own = own_steps(model, 12)
    if kind in ("gpt2", "llama", "mistral"):
        model.set_attn_implementation(implementation)
    generation = generate_live(model, IDS, generate=12)
    for number, step in enumerate(generation):
        assert (step.position, step.query) == (8 + number, 7 + number)
        assert step.token.id == int(own.sequences[0, 8 + number])
        for layer in range(len(own.attentions[0])):
            expected = own.attentions[number][layer][0, :, -1].numpy()
            row = step.weights(layer=layer)
            # A window's cache has forgotten the first keys.
            width = min(expected.shape[1], row.shape[1])
            assert np.abs(row[:, -width:] - expected[:, -width:]).max() < 1e-4
            assert not row[:, :-width].any()
    assert number == 11
    record = generation.record
    assert_predictions(record.tokens, own, 8)
    for layer in range(len(own.attentions[0])):
        expected = stitched(own.attentions, layer, 19, None)
        assert np.abs(record.stack().weights(layer=layer)[:, :19, :19] - expected).max() < 1e-4
    assert_same(record, extract(model, IDS, generate=12))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 15, "do_sample": True, "temperature": 1.3, "top_k": 20},
        {"max_new_tokens": 6, "do_sample": False, "use_cache": False},
        {"max_new_tokens": 1, "do_sample": False},
    ],
)
@pytest.mark.parametrize("kind", ["llama", "mistral", "bloom"])
def test_the_record_is_that_of_extract(
    kind: str, settings: dict[str, Any], make_model: Callable[..., Any]
) -> None:
    model = make_model(kind)
    chosen: list[dict[str, Any]] = [{}, {"layers": [0, 1], "heads": [1, 3], "dtype": "float64"}]
    for options in chosen:
        torch.manual_seed(5)
        expected = extract(model, IDS, generate=settings, **options)
        torch.manual_seed(5)
        found = generate_live(model, IDS, generate=settings, **options).wait()
        assert_same(found, expected)


def test_queries_and_keys_are_kept_in_half_the_bytes(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    expected = extract(model, IDS, generate=9, dtype="float16")
    found = generate_live(model, IDS, generate=9, dtype="float16").wait()
    for layer in range(3):
        attention = found.stack().attention(layer).vectors
        assert attention is not None
        assert attention.keys.dtype == torch.float16
        one, other = (each.stack().weights(layer=layer) for each in (found, expected))
        # A number between two of float16 may go to either, by its last digit.
        assert np.abs(one - other).max() < 5e-3


@pytest.mark.parametrize("window", [4, 8, 11, 30])
def test_a_sliding_window_shorter_and_longer_than_the_prompt(window: int) -> None:
    config = {
        **dict.fromkeys(("num_hidden_layers", "num_key_value_heads"), 2),
        "vocab_size": 300,
        "hidden_size": 48,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "sliding_window": window,
        "eos_token_id": None,
    }
    model = built("MistralForCausalLM", config)
    expected = extract(model, IDS, generate=10)
    found = generate_live(model, IDS, generate=10).wait()
    assert_same(found, expected)
    rows = slice(0, 18)
    one, other = (each.stack().allowed(layer=1, head=0, rows=rows) for each in (found, expected))
    assert np.array_equal(one, other)


def test_the_demo_decoder_in_an_async_for() -> None:
    model, tokenizer = demos.load("decoder")
    text = demos.example("decoder")["inputs"]
    expected = extract(model, text, tokenizer=tokenizer, generate=12)

    async def main() -> tuple[list[str], AttentionRecord]:
        generation = generate_live(model, text, tokenizer=tokenizer, generate=12)
        return [step.text async for step in generation], generation.record

    texts, record = asyncio.run(main())
    assert_same(record, expected)
    assert texts == [each.token.text for each in record.tokens.predictions]
    assert len(texts) == 12


def test_as_many_forwards_as_the_model_makes(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    forwards = Forwards(model)
    generate_live(model, IDS, generate=9).wait()
    # The prompt, a step for each token but the last, and the last one's row.
    assert forwards.lengths == [8] + [1] * 9
    model.generate(IDS, max_new_tokens=9, do_sample=False)
    assert forwards.lengths[10:] == [8] + [1] * 8


def test_a_bar_of_another_thread_keeps_nothing_waiting(make_model: Callable[..., Any]) -> None:
    """An interrupt in the middle of a bar may leave tqdm's lock with the main thread for good."""
    with tqdm.get_lock():  # type: ignore[no-untyped-call]
        assert len(list(generate_live(make_model("llama"), IDS, generate=3))) == 3


def test_stop_keeps_what_is_there(make_model: Callable[..., Any]) -> None:
    model = make_model("llama").train()
    before = state_of(model)
    generation = generate_live(model, IDS, generate=50)
    for step in generation:
        if step.position == 12:
            break
    record = generation.wait()
    came = len(generation.steps)
    assert generation.stopped
    assert 5 <= came < 50
    assert_same(record, extract(model, IDS, generate=came))
    assert state_of(model) == before


def test_leaving_an_async_for_stops(make_model: Callable[..., Any]) -> None:
    generation = generate_live(make_model("llama"), IDS, generate=50)

    async def main() -> None:
        async for step in generation:
            if step.position == 10:
                break
        # At once, though the event loop has no turn before.
        assert generation.stopped
        generation.wait()

    asyncio.run(main())
    assert len(generation.steps) < 50


def test_cancelling_an_async_for_stops(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    reached, go_on = halted(model)
    generation = generate_live(model, IDS, generate=50)

    async def read() -> None:
        async for _ in generation:
            pass

    async def main() -> None:
        task = asyncio.create_task(read())
        await asyncio.to_thread(reached.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert generation.stopped
    go_on.set()
    generation.wait()
    assert len(generation.steps) < 50


def test_several_generations_of_a_model_at_once(make_model: Callable[..., Any]) -> None:
    model = make_model("llama").train()
    prompts = [IDS, IDS.flip(1)]
    expected = [extract(model, each, generate=12) for each in prompts]
    met = threading.Barrier(2)
    steps: Counter[int] = Counter()

    def meet(_number: int) -> None:
        # Both are in the middle of their text at the same time.
        steps[threading.get_ident()] += 1
        if steps[threading.get_ident()] == 5:
            met.wait(60)

    Forwards(model).before = meet
    before = state_of(model)
    generations = [generate_live(model, each, generate=12) for each in prompts]
    for generation, other in zip(generations, expected, strict=True):
        assert_same(generation.wait(), other)
    assert state_of(model) == before


def test_an_error_of_the_model_in_a_step(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")

    def fail(number: int) -> None:
        if number == 4:
            raise RuntimeError("out of memory in a step")

    forwards = Forwards(model)
    before = state_of(model)
    forwards.before = fail
    generation = generate_live(model, IDS, generate=9)
    with pytest.raises(RuntimeError, match="out of memory in a step"):
        list(generation)
    assert [step.position for step in generation.steps] == [8, 9, 10]
    for ask in (generation.wait, lambda: generation.record):
        with pytest.raises(RuntimeError, match="out of memory in a step"):
            ask()
    assert state_of(model) == before
    assert repr(generation) == "<LiveGeneration of LlamaForCausalLM: 3 tokens, failed>"
    assert generation.record_of(10).tokens.ids == (*IDS[0].tolist(), *_ids(generation)[:2])
    forwards.before = lambda _: None
    assert_same(generate_live(model, IDS, generate=3).wait(), extract(model, IDS, generate=3))


def _ids(generation: LiveGeneration) -> list[int]:
    return [step.token.id for step in generation.steps]


def test_the_record_of_every_moment_is_that_of_the_text_so_far(
    make_model: Callable[..., Any],
) -> None:
    model = make_model("mistral")
    generation = generate_live(model, IDS, generate=9)
    final = generation.wait()
    assert final.tokens.ids is not None
    for count in range(8, 17):
        record = generation.record_of(count)
        own = extract(model, torch.tensor([final.tokens.ids[:count]]))
        for layer in range(3):
            found = record.stack().weights(layer=layer)
            assert np.abs(found - own.stack().weights(layer=layer)).max() < 1e-4
        predictions = record.tokens.predictions
        # The last one is of a token that was not read.
        assert [each.token.id for each in predictions] == _ids(generation)[: count - 7]
        assert [each.row for each in predictions] == [*range(8, count), None]


def test_the_model_is_used_meanwhile(make_model: Callable[..., Any]) -> None:
    model = make_model("llama").train()
    other = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    expected = extract(model, other, generate=4), extract(model, IDS, generate=20)
    reached, go_on = halted(model)
    generation = generate_live(model, IDS, generate=20)
    assert reached.wait(60)
    with torch.no_grad():
        model(input_ids=other)
    assert_same(extract(model, other, generate=4), expected[0])
    go_on.set()
    assert_same(generation.wait(), expected[1])
    assert model.training


def test_an_interrupt_of_the_wait_stops(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = generate_live(make_model("llama"), IDS, generate=50)

    def interrupt(_seconds: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(generation._changed, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            generation.wait()
    assert generation.stopped
    generation.wait()
    assert len(generation.steps) < 50


def test_what_cannot_be_read_says_how_else(make_model: Callable[..., Any]) -> None:
    llama = make_model("llama")
    with pytest.raises(NotImplementedError, match=r"num_beams=3.*live=False"):
        generate_live(llama, IDS, generate={"max_new_tokens": 4, "num_beams": 3})
    tries: list[dict[str, Any]] = [
        {"prompt_lookup_num_tokens": 1},
        {"assistant_model": llama},
        {"guidance_scale": 1.5},
    ]
    for more in tries:
        words = rf"with {next(iter(more))} a step reads more.*attnviz\.extract"
        with pytest.raises(NotImplementedError, match=words):
            generate_live(llama, IDS, generate={"max_new_tokens": 4} | more)
    fixed = {"max_new_tokens": 4, "cache_implementation": "static"}
    with pytest.raises(NotImplementedError, match=r"other keys than those of its text.*live=False"):
        generate_live(llama, IDS, generate=fixed).wait()
    with pytest.raises(NotImplementedError, match=r"an encoder beside its decoder.*live=False"):
        generate_live(make_model("bart"), IDS, generate=4)
    config = {"vocab_size": 300, "d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}
    mpt = built("MptForCausalLM", {**config, "eos_token_id": None})
    with pytest.raises(NotImplementedError, match=r"adds to its logits.*live=False"):
        generate_live(mpt, IDS, generate=4).wait()


def test_a_model_that_is_run_once_more_in_a_step(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")

    class Again(LogitsProcessor):  # type: ignore[misc, unused-ignore]
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if input_ids.shape[1] == 10:
                model(input_ids=input_ids[:, -1:])
            return scores

    settings = {"max_new_tokens": 6, "logits_processor": LogitsProcessorList([Again()])}
    generation = generate_live(model, IDS, generate=settings)
    with pytest.raises(NotImplementedError, match="not read one token in each step"):
        list(generation)
    # What came before is right.
    assert [step.position for step in generation.steps] == [8, 9]


def test_with_autocast_as_where_it_was_begun(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    dtypes: list[torch.dtype] = []
    model.lm_head.register_forward_hook(lambda _module, _given, out: dtypes.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        generation = generate_live(model, IDS, generate=3)
    generation.wait()
    generate_live(model, IDS, generate=3).wait()
    assert dtypes == 4 * [torch.bfloat16] + 4 * [torch.float32]


def test_the_models_cache_is_let_go_of_at_the_end(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    caches: list[weakref.ref[Any]] = []

    def note(_module: Any, _args: Any, kwargs: Any) -> None:
        caches.append(weakref.ref(kwargs["past_key_values"]))

    model.register_forward_pre_hook(note, with_kwargs=True)
    generation = generate_live(model, IDS, generate=3)
    generation.wait()
    generation._thread.join()
    gc.collect()
    assert caches
    assert all(each() is None for each in caches)
    kept = weakref.ref(generation)
    del generation
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    ("inputs", "generate", "error", "words"),
    [
        (torch.tensor([[1, 2], [3, 4]]), 4, ValueError, "2 prompts"),
        (["one", "two"], 4, ValueError, "2 prompts"),
        (IDS, 0, ValueError, "at least 1"),
        (IDS, None, TypeError, "generate"),
        (IDS, 10_000, ValueError, "positions"),
        (None, 4, ValueError, "nothing was given"),
    ],
)
def test_bad_input(
    inputs: Any,
    generate: Any,
    error: type[Exception],
    words: str,
    make_model: Callable[..., Any],
) -> None:
    with pytest.raises(error, match=words):
        generate_live(make_model("gpt2"), inputs, generate=generate).wait()


def test_a_generation_is_not_pickled_and_its_record_is(make_model: Callable[..., Any]) -> None:
    generation = generate_live(make_model("llama"), IDS, generate=3)
    record = generation.wait()
    for what in (generation, generation.steps[0]):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*generation\.wait"):
            pickle.dumps(what)
    assert_same(pickle.loads(pickle.dumps(record)), record)  # noqa: S301


def test_heads_layers_and_stacks_of_a_step(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    generation = generate_live(model, IDS, generate=3, heads={1: [2, 3]})
    step = next(iter(generation))
    assert step.weights(layer=1).shape == (2, 8)
    assert np.array_equal(step.weights(layer=-1, head=3), step.weights(layer=1)[1])
    with pytest.raises(IndexError, match="heads 2, 3"):
        step.weights(layer=1, head=0)
    with pytest.raises(IndexError, match="layers 1"):
        step.weights(layer=0)
    with pytest.raises(KeyError, match="self"):
        step.weights(layer=1, stack="cross")


def test_what_is_kept_grows_with_the_text_alone(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    generation = generate_live(model, IDS, generate=40)
    generation.wait()
    sizes = [
        (rows._values.shape[1], rows.count)
        for layer in generation._growth._layers.values()
        for rows in (layer.queries, layer.keys)
    ]
    # Buffers of queries and keys, twice as long as the text at most, and no weights.
    assert {count for _, count in sizes} == {48}
    assert all(capacity <= 8 + 64 for capacity, _ in sizes)


def test_a_view_outside_of_a_notebook_waits_for_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, tokenizer = demos.load("decoder")
    view = attnviz.show_head_view(
        model, "the cat sat", tokenizer=tokenizer, generate=5, live=True, heads=[1]
    )
    assert_same(view.wait(), extract(model, "the cat sat", tokenizer=tokenizer, generate=5))
    assert capsys.readouterr().out.strip().endswith(".html")
    view.stop()


def test_a_view_of_a_generation_follows_it(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    expected = extract(model, IDS, generate=30)
    reached, go_on = halted(model)
    view = attnviz.HeadView(generate_live(model, IDS, generate=30), include_layers=[1, 2])
    assert reached.wait(60)
    assert len(view.record.tokens) == 12
    assert view.record.stack().layers == (1, 2)
    view.token = 11
    with pytest.raises(traitlets.TraitError, match="queries 0 to 11"):
        view.token = 12
    assert "self@12" not in view.to_html()
    go_on.set()
    assert_same(view.wait(), expected.only([1, 2]))
    view.token = 37
    view.close()


def test_a_view_that_is_closed_ends_its_generation(make_model: Callable[..., Any]) -> None:
    generation = generate_live(make_model("llama"), IDS, generate=50)
    attnviz.HeadView(generation).close()
    generation.wait()
    assert generation.stopped


def test_the_last_view_that_is_closed_ends_its_generation(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    reached, go_on = halted(model)
    generation = generate_live(model, IDS, generate=30)
    head, matrix = attnviz.HeadView(generation), attnviz.MatrixView(generation)
    assert reached.wait(60)
    head.close()
    head.close()
    after_one = generation.stopped
    matrix.close()
    assert (after_one, generation.stopped) == (False, True)
    go_on.set()
    generation.wait()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "generate= is missing"),
        ({"generate": 3, "words": True}, ValueError, "live=True and words="),
        ({"generate": 3, "spool": "x"}, ValueError, "live=True and spool="),
        ({"generate": 3, "target": "x"}, ValueError, "live=True and target="),
        ({"generate": {"max_new_tokens": 3, "num_beams": 2}}, NotImplementedError, "live=False"),
        ({"generate": 0}, ValueError, "at least 1"),
    ],
)
def test_what_does_not_go_with_live(
    arguments: dict[str, Any],
    error: type[Exception],
    words: str,
    make_model: Callable[..., Any],
) -> None:
    with pytest.raises(error, match=words):
        attnviz.show_head_view(make_model("gpt2"), IDS, live=True, **arguments)


def test_live_needs_a_model_and_a_view_that_follows(make_model: Callable[..., Any]) -> None:
    model = make_model("gpt2")
    with pytest.raises(ValueError, match="NeuronView does not show tokens as they come"):
        attnviz.show_neuron_view(model, IDS, generate=3, live=True)
    with pytest.raises(TypeError, match="needs a model"):
        attnviz.show_head_view(extract(model, IDS), generate=3, live=True)
    with pytest.raises(TypeError, match="the prompt"):
        attnviz.show_head_view(model, generate=3, live=True)
    with pytest.raises(TypeError, match="live='yes'"):
        attnviz.show_head_view(model, IDS, generate=3, live="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"generation\.wait"):
        attnviz.NeuronView(generate_live(model, IDS, generate=3))
