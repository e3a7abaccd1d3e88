"""Live generation repeatedly extracts the text so far, and shows its record in a view."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnviz import AttentionRecord, HeadView, NeuronView, demos, show_head_view
from attnviz.extraction import extract
from attnviz.extraction import live as live_extraction
from attnviz.extraction.live import extract_live
from attnviz.views import show as showing
from attnviz.views.live import LiveGeneration
from models.interrupts import state_of
from models.make_models import make_model
from models.speech import TOKENS, whisper
from models.steps import IDS
from unit.records import assert_same

TEXT = "the animal did not cross the street because"
COUNT = 8


@pytest.fixture
def at_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let live generation make a record after every token."""
    monkeypatch.setattr(live_extraction, "_MIN_PAUSE", 0.0)
    monkeypatch.setattr(live_extraction, "_MAX_SHARE", math.inf)


def generated(
    model: Any,
    generate: Any = COUNT,
    is_stopped: Callable[[list[AttentionRecord]], bool] | None = None,
) -> tuple[AttentionRecord, list[AttentionRecord]]:
    """Generate text after `IDS`. Return the final record, and all records that were shown.

    `is_stopped` gets the records shown so far, and returns whether to stop the generation.
    """
    shown: list[AttentionRecord] = []
    record = extract_live(
        model,
        IDS,
        generate=generate,
        show=lambda partial, _: shown.append(partial),
        is_stopped=lambda: is_stopped is not None and is_stopped(shown),
    )
    return record, shown


@pytest.mark.usefixtures("at_each_token")
@pytest.mark.parametrize("name", ["gpt2", "mistral", "gpt_oss", "bloom", "bart"])
def test_intermediate_records_equal_those_of_shorter_generations(name: str) -> None:
    model = make_model(name)
    before = state_of([model])
    record, shown = generated(model)
    assert state_of([model]) == before
    for count, partial in enumerate(shown, 1):
        assert_same(partial, extract(model, IDS, generate=count))
    # The final record is the last shown record. There was no further extraction.
    assert record is shown[-1]


@pytest.mark.usefixtures("at_each_token")
@pytest.mark.parametrize("beams", [1, 3])
def test_records_of_a_sound_start_with_the_language_and_the_task(beams: int) -> None:
    inputs = {"input_features": torch.randn(1, 16, 100)}
    settings = {"max_new_tokens": 5, "language": "de", "task": "translate", "num_beams": beams}
    shown: list[AttentionRecord] = []
    record = extract_live(
        whisper(**TOKENS),
        inputs,
        generate=settings,
        show=lambda partial, _: shown.append(partial),
        is_stopped=lambda: False,
    )
    assert_same(record, extract(whisper(**TOKENS), inputs, generate=settings))
    for count, partial in enumerate(shown, 1):
        assert (partial.stacks["cross"].query_tokens.ids or ())[:4] == (3, 171, 173, 175)
        assert_same(
            partial,
            extract(whisper(**TOKENS), inputs, generate=settings | {"max_new_tokens": count}),
        )
    # In a beam search, the text is known only at the end.
    assert len(shown) == (5 if beams == 1 else 0)


@pytest.mark.parametrize(
    ("seconds", "count", "extracted_at"),
    [
        # Seconds of the prompt's forward, of a later token's and of an extraction. The first
        # extraction is expected to take as long as the prompt: 4 / 0.2 = 20 = 4 + 16 seconds. The
        # second follows when 4 + 4 seconds are a fifth of the time without extractions.
        ((4.0, 1.0, 4.0), 50, [17, 37]),
        # An extraction that takes longer than expected delays the next: (5 + 5) / 0.2 = 50 seconds.
        ((2.0, 1.0, 5.0), 50, [9, 49]),
        # At most one extraction per second, in which 8 tokens are generated.
        ((0.125, 0.125, 0.015625), 26, [8, 16, 24]),
        # No extraction fits into a short generation after a long prompt.
        ((10.0, 1.0, 10.0), 40, []),
        # A machine that is a thousand times slower extracts at the same tokens.
        ((4000.0, 1000.0, 4000.0), 50, [17, 37]),
    ],
)
def test_extractions_take_a_fifth_of_the_generation(
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, float, float],
    count: int,
    extracted_at: list[int],
) -> None:
    prompt, token, extraction = seconds
    now = 0.0
    model = make_model("gpt2")
    monkeypatch.setattr(live_extraction, "time", SimpleNamespace(monotonic=lambda: now))

    def forward(_module: Any, _args: Any, options: dict[str, Any]) -> None:
        nonlocal now
        # Forwards of the generation use a cache, and forwards of an extraction do not.
        generates = token if now else prompt
        now += generates if options.get("use_cache") else extraction

    model.register_forward_pre_hook(forward, with_kwargs=True)
    _, shown = generated(model, count)
    assert [len(record.tokens.predictions) for record in shown] == extracted_at


@pytest.mark.usefixtures("at_each_token")
def test_a_stopped_generation_keeps_its_tokens() -> None:
    model = make_model("gpt2")
    record, _ = generated(model, is_stopped=lambda shown: len(shown) == 3)
    assert_same(record, extract(model, IDS, generate=3))


class Steps:
    """Fake of `extract_live`. It shows one record at once, and one after each `turns.release()`."""

    def __init__(self, counts: int) -> None:
        model, tokenizer = demos.load("decoder")
        self.records = [
            extract(model, TEXT, tokenizer=tokenizer, generate=count)
            for count in range(1, counts + 1)
        ]
        self.turns = threading.Semaphore(1)
        self.fails = False

    def __call__(
        self, *, show: Callable[[AttentionRecord, int], None], is_stopped: Callable[[], bool]
    ) -> AttentionRecord:
        for record in self.records:
            assert self.turns.acquire(timeout=60)
            if self.fails:
                raise RuntimeError("out of memory")
            # Ask before `show`, so that a stop during `show` ends the loop after the next record.
            stops = is_stopped()
            show(record, COUNT)
            if stops:
                break
        return record


def in_a_kernel(run: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new thread, because the main thread may run an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run).result()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", [HeadView, NeuronView])
def test_a_view_stays_at_the_newest_token_unless_the_reader_moves(kind: Any) -> None:
    async def run() -> None:
        steps = Steps(4)
        generation = LiveGeneration(steps, asyncio.get_running_loop())
        view = kind(generation.first_record(), layer=1, heads=[2])
        generation.show_in(view)
        assert (view.prediction, view._generating) == (0, {"came": 1, "most": COUNT})
        steps.turns.release()
        await until(lambda: view.record is steps.records[1])
        assert (view.prediction, view.layer, view.heads) == (1, 1, [2])
        view.prediction = 0
        steps.turns.release()
        await until(lambda: view.record is steps.records[2])
        assert (view.prediction, view._generating["came"]) == (0, 3)
        view.prediction = -1
        view.stop()
        steps.turns.release()
        generation.join()
        await until(lambda: view.record is steps.records[3])
        assert (view.prediction, view._generating) == (3, None)

    in_a_kernel(run())


def test_an_error_of_the_model_is_reported_and_the_text_is_kept() -> None:
    async def run() -> None:
        steps = Steps(2)
        generation = LiveGeneration(steps, asyncio.get_running_loop())
        view = HeadView(generation.first_record())
        generation.show_in(view)
        steps.fails = True
        steps.turns.release()
        await until(lambda: "problem" in (view._generating or {}))
        assert view._generating["problem"] == "RuntimeError: out of memory"
        assert view.record is steps.records[0]
        steps.turns.release()
        with pytest.raises(RuntimeError, match="out of memory"):
            LiveGeneration(steps, asyncio.get_running_loop()).first_record()

    in_a_kernel(run())


def test_closing_a_view_ends_its_generation() -> None:
    async def run() -> None:
        steps = Steps(4)
        generation = LiveGeneration(steps, asyncio.get_running_loop())
        view = HeadView(generation.first_record())
        generation.show_in(view)
        view.close()
        steps.turns.release()
        generation.join(60)
        assert generation._record is steps.records[1]

    in_a_kernel(run())


def test_in_a_script_the_call_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "show", lambda view: view)
    model, tokenizer = demos.load("decoder")
    options: dict[str, Any] = {"tokenizer": tokenizer, "generate": COUNT}
    view = show_head_view(model, TEXT, live=True, **options)
    assert_same(view.record, extract(model, TEXT, **options))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "needs generate=, which is missing"),
        ({"generate": 3, "words": True}, TypeError, r"live=True shows .*\. Omit words"),
    ],
)
def test_arguments_that_conflict_with_live_raise(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    model, tokenizer = demos.load("decoder")
    with pytest.raises(error, match=message):
        show_head_view(model, TEXT, tokenizer=tokenizer, **({"live": True} | options))
