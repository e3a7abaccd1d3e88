"""Tests of `extract` for pipelines of diffusers, on tiny pipelines of the classes people load.

The expected weights are softmaxes in float64, computed from the arguments of the calls that the
denoiser makes in an unwatched run with the same generator, or by diffusers' own eager processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
from attnviz import AttentionRecord, extract
from attnviz.record.attention import StoredAttention

pytest.importorskip("diffusers")

from models.diffusion_pipelines import BUILDERS, PROMPT, STEPS, make
from models.interrupts import Subject, Tracer, positions

#: Row of the prompt in a batch with classifier-free guidance, and number of forwards per step.
ROWS = dict.fromkeys(BUILDERS, (1, 1)) | {
    "FLUX": (0, 1),
    "Wan": (0, 2),
    "HunyuanVideo": (0, 1),
    "Qwen-Image": (0, 1),
}
#: Pipelines that make a film. A patch has up to four of its frames.
FILMS = ("Wan", "CogVideoX", "HunyuanVideo")
#: Source files that change and restore a pipeline, by the ends of their paths.
CHANGING = ("diffusion.py", "cleanup.py", "hooks.py", "forward.py", "trace.py", "reading.py")
#: Rows are sums of products of at most 16 numbers of size up to about 30, in float32, so weights
#: have errors of a few thousand roundings at most.
ERROR = 2e-5


def denoiser_of(pipe: Any) -> Any:
    return getattr(pipe, "unet", None) or pipe.transformer


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def run(pipe: Any, call: dict[str, Any]) -> NDArray[Any]:
    """Return the picture, or the frames, of an unwatched call."""
    first = pipe(**call, generator=generator())[0][0]
    array = np.asarray(first)
    return array if array.dtype == np.uint8 else np.rint(array * 255).astype(np.uint8)


@contextmanager
def noting(pipe: Any, kind: str, weights: list[list[NDArray[Any]]]) -> Iterator[None]:
    """Note the weights of each call with the prompt, in a list for each step."""
    row, per_step = ROWS[kind]
    attend = torch.nn.functional.scaled_dot_product_attention
    running, count = [False], [0]

    def begin(*_: Any) -> None:
        running[0] = count[0] % per_step == 0
        count[0] += 1
        if running[0]:
            weights.append([])

    def end(*_: Any) -> None:
        running[0] = False

    def attended(
        query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **options: Any
    ) -> Any:
        # With one query, HunyuanDiT pools the prompt for the embedding of the step.
        if running[0] and query.shape[2] > 1:
            logits = query[row].double() @ key[row].double().mT / query.shape[-1] ** 0.5
            if attn_mask is not None:
                mask = attn_mask[row]
                fill = torch.zeros(mask.shape, dtype=torch.float64)
                is_flag = mask.dtype == torch.bool
                logits = logits + (fill.masked_fill(~mask, -np.inf) if is_flag else mask.double())
            weights[-1].append(logits.softmax(-1).numpy())
        return attend(query, key, value, attn_mask, *args, **options)

    hooks = [
        denoiser_of(pipe).register_forward_pre_hook(begin),
        denoiser_of(pipe).register_forward_hook(end),
    ]
    if kind == "HunyuanVideo":
        # Words attend to words before they meet patches.
        words = pipe.transformer.context_embedder
        hooks.append(words.register_forward_pre_hook(end))
        hooks.append(words.register_forward_hook(lambda *_: running.__setitem__(0, True)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attended)
        yield
    for handle in hooks:
        handle.remove()


def expected(
    pipe: Any, call: dict[str, Any], kind: str
) -> tuple[NDArray[Any], list[list[NDArray[Any]]]]:
    """Return the picture of a call that attnviz does not watch, and the weights of each step."""
    weights: list[list[NDArray[Any]]] = []
    with noting(pipe, kind, weights):
        picture = run(pipe, call)
    return picture, weights


def assert_step(
    record: AttentionRecord, ending: str, calls: list[NDArray[Any]], name: str = ""
) -> None:
    """Assert that the stacks of a step have the weights of all `calls`, in their order."""
    stacks = [stack for title, stack in record.stacks.items() if title.endswith(ending)]
    assert sum(len(stack.layers) for stack in stacks) == len(calls), name
    for stack in stacks:
        shape = (len(stack.query_tokens), len(stack.key_tokens))
        own = [weights for weights in calls if weights.shape[1:] == shape]
        assert stack.layers == tuple(range(len(own)))
        for layer, weights in zip(stack.layers, own, strict=True):
            assert np.abs(stack.weights(layer=layer) - weights).max() < ERROR
            # A wrong formula would not show in nearly uniform rows.
            assert weights.max() > 2 / shape[1]


def state(pipe: Any) -> list[Any]:
    """Return everything that watching a pipeline changes."""
    parts = [part for part in pipe.components.values() if part is not None]
    modules = [one for part in parts if isinstance(part, torch.nn.Module) for one in part.modules()]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    return [
        sorted(vars(pipe)),
        [sorted(vars(part)) for part in parts],
        [(list(vars(module)), *(dict(vars(module)[name]) for name in hooks)) for module in modules],
        [getattr(module, "processor", None) for module in modules],
        [str(getattr(part, "config", "")) for part in parts],
        list(torch.overrides._get_current_function_mode_stack()),
        torch.nn.functional.scaled_dot_product_attention,
        torch.is_grad_enabled(),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("Stable Diffusion 1.5", "cross 8x6", "<|startoftext|> a red cat on grass <|endoftext|>"),
        ("Stable Diffusion XL", "cross 8x6", "<|startoftext|> a red cat on grass <|endoftext|>"),
        ("Stable Diffusion 3", "joint 8x4", "<|startoftext|> a red cat on grass <|endoftext|>"),
        ("FLUX", "joint 8x4", "a red cat on grass </s>"),
        ("PixArt", "cross 8x4", "a red cat on grass </s>"),
        ("HunyuanDiT", "cross 8x4", "[CLS] a red cat on grass [SEP]"),
        ("Wan", "cross 3x1x2", "a red cat on grass </s>"),
        ("CogVideoX", "joint 3x1x2", "a red cat on grass </s>"),
    ],
)
def test_weights_picture_state_and_tokens(kind: str, name: str, words: str, tmp_path: Path) -> None:
    pipe, call = make(kind, tmp_path)
    picture, calls = expected(pipe, call, kind)
    assert len(calls) == STEPS
    before, forwards = state(pipe), []
    handle = denoiser_of(pipe).register_forward_pre_hook(lambda *_: forwards.append(1))
    record = extract(pipe, call | {"generator": generator()}, steps=[1, -1])
    handle.remove()
    assert state(pipe) == before
    assert len(forwards) == STEPS * ROWS[kind][1]
    assert_step(record, "step 1", calls[1], kind)
    assert_step(record, "step 2", calls[2], kind)
    assert not any(title.endswith("step 0") for title in record.stacks)
    frames = picture[::4] if kind in FILMS else [picture]
    assert all(map(np.array_equal, record.images, frames))
    assert len(record.images) == len(frames)
    assert next(iter(record.stacks)).startswith(f"{name} step ")
    stack = record.stacks[f"{name} step 1"]
    tokens, patches = stack.key_tokens, stack.query_tokens
    first = tokens.text.index(words.split(maxsplit=1)[0])
    assert tokens.text[first : first + len(words.split())] == tuple(words.split())
    padding = [index for index, text in enumerate(tokens.text) if text == "[PAD]"]
    assert padding
    assert all(tokens.special[index] for index in padding)
    assert tokens.text.count("cat") == (2 if kind in ("Stable Diffusion 3", "HunyuanDiT") else 1)
    # The text and the patches have all tokens of the denoiser.
    num_patches = {"FLUX": 32, "CogVideoX": 6}.get(kind, 0)
    assert len(tokens) - padding[-1] - 1 == num_patches
    sizes = [int(size) for size in name.partition(" ")[2].split("x")]
    assert [(grid.rows, grid.columns) for grid in patches.grids] == [tuple(sizes[-2:])] * (
        3 if kind in FILMS else 1
    )
    start = patches.grids[0].start
    assert patches.text[start].endswith("0,0")
    assert start == (12 if num_patches else 0)
    assert any("(guidance)" in note for note in record.notes) == (kind != "FLUX")
    if kind == "PixArt":
        # The other classes do not mask the padding of the prompt.
        assert stack.weights(layer=0)[..., padding].max() == 0


@pytest.mark.parametrize(("kind", "dropped"), [("Qwen-Image", 34), ("HunyuanVideo", 95)])
def test_words_after_an_instruction(kind: str, dropped: int, tmp_path: Path) -> None:
    """The pipelines drop the vectors of an instruction that they write before the prompt."""
    pipe, call = make(kind, tmp_path)
    read: list[Any] = []
    handle = pipe.text_encoder.register_forward_pre_hook(
        lambda _, __, options: read.append(options["input_ids"][0, dropped:]), with_kwargs=True
    )
    record = extract(pipe, call | {"generator": generator()}, steps=1)
    handle.remove()
    _, calls = expected(pipe, call, kind)
    assert_step(record, "", calls[1], kind)
    tokens = record.stack().key_tokens
    start = 0 if kind == "Qwen-Image" else len(tokens) - len(read[0])
    words = tokens.text[start : start + len(read[0])]
    assert list(words) == pipe.tokenizer.convert_ids_to_tokens(read[0])
    assert len(tokens) == len(words) + sum(grid.rows * grid.columns for grid in tokens.grids)


@pytest.mark.parametrize("kind", ["Stable Diffusion 1.5", "Stable Diffusion 3", "FLUX"])
def test_mean_of_all_steps(kind: str, tmp_path: Path) -> None:
    pipe, call = make(kind, tmp_path)
    _, calls = expected(pipe, call, kind)
    record = extract(pipe, call | {"generator": generator()}, steps="mean")
    assert all(name.startswith("cross") for name in record.stacks)
    for stack in record.stacks.values():
        patches, words = len(stack.query_tokens), len(stack.key_tokens)
        is_joint = "Diffusion 1.5" not in kind
        assert stack.normalized is not is_joint
        length = patches + words if is_joint else words
        rows, columns = slice(None), slice(None)
        if kind == "FLUX":
            rows, columns = slice(words, None), slice(words)
        elif is_joint:
            rows, columns = slice(patches), slice(patches, None)
        own = [[one for one in step if one.shape[2] == length] for step in calls]
        own = [[one for one in step if one.shape[1] in (patches, length)] for step in own]
        assert len(own[0]) == len(stack.layers)
        for layer, steps in zip(stack.layers, zip(*own, strict=True), strict=True):
            mean = np.mean([one[:, rows, columns] for one in steps], axis=0)
            assert np.abs(stack.weights(layer=layer) - mean).max() < ERROR


def size_of(record: AttentionRecord) -> int:
    """Return the bytes of all arrays that a record holds."""
    return sum(
        part.untyped_storage().nbytes()
        for stack in record.stacks.values()
        for layer in stack.layers
        for part in cast("StoredAttention", stack.attention(layer)).parts.values()
    )


def test_memory_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    pipe, call = make("FLUX", tmp_path)
    sizes = {
        (steps, count): size_of(extract(pipe, call | {"num_inference_steps": count}, steps=steps))
        for steps in (None, "mean", "all")
        for count in (4, 12)
    }
    assert sizes[None, 4] == sizes[None, 12]
    assert sizes["mean", 4] == sizes["mean", 12]
    # By default, a record has four steps.
    assert sizes["all", 12] == 3 * sizes["all", 4] == 3 * sizes[None, 12]
    pipe, call = make("Stable Diffusion 1.5", tmp_path)
    last = extract(pipe, call, layers=-1, dtype="bfloat16", steps=0)
    assert [stack.layers for stack in last.stacks.values()] == [(3,), (2,), (3,), (2,)]
    assert last.stack().attention(3).vectors.queries.dtype == torch.bfloat16


def test_too_many_steps_for_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, call = make("FLUX", tmp_path)
    size = size_of(extract(pipe, call, steps=0))
    # Other processes change the free memory of this machine.
    monkeypatch.setattr("attnviz.extraction.diffusion.free_memory", lambda _: 2 * size)
    assert extract(pipe, call, steps="all")
    monkeypatch.setattr("attnviz.extraction.diffusion.free_memory", lambda _: 2 * size - 1)
    with pytest.raises(MemoryError, match=r"steps: 3 steps take .* steps='mean'"):
        extract(pipe, call, steps="all")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("kind", ["Stable Diffusion XL", "FLUX"])
def test_an_exception_leaves_nothing_behind(
    kind: str, error: type[BaseException], tmp_path: Path
) -> None:
    pipe, call = make(kind, tmp_path)
    picture, before = run(pipe, call), state(pipe)
    module = next(one for one in denoiser_of(pipe).modules() if hasattr(one, "to_out"))

    def stop(*_: Any) -> None:
        raise error("stop")

    handle = module.to_out[0].register_forward_hook(stop)
    with pytest.raises(error, match="stop"):
        extract(pipe, call, steps="all")
    handle.remove()
    pipe.maybe_free_model_hooks()
    assert state(pipe) == before
    assert np.array_equal(run(pipe, call), picture)


def test_eager_processor_of_diffusers(tmp_path: Path) -> None:
    from diffusers.models.attention_processor import Attention, AttnProcessor

    pipe, call = make("Stable Diffusion 1.5", tmp_path)
    pipe.unet.set_attn_processor(AttnProcessor())
    computed = Attention.get_attention_scores
    weights: list[torch.Tensor] = []

    def scores(self: Any, *args: Any) -> torch.Tensor:
        weights.append(computed(self, *args))
        return weights[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "get_attention_scores", scores)
        run(pipe, call | {"num_inference_steps": 1})
    # The batch is the run without the prompt, then with it.
    own = [one.unflatten(0, (2, -1))[1].numpy() for one in weights if one.shape[0] > 1]
    record = extract(pipe, call | {"num_inference_steps": 1, "generator": generator()})
    assert_step(record, "", [one for one in own if one.shape[1] in (48, 192)])


def test_flux_with_a_negative_prompt(tmp_path: Path) -> None:
    pipe, call = make("FLUX", tmp_path)
    call |= {"negative_prompt": "a dog", "true_cfg_scale": 4.0, "num_inference_steps": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ROWS, "FLUX", (0, 2))
        _, calls = expected(pipe, call, "FLUX")
    record = extract(pipe, call | {"generator": generator()}, steps=1)
    assert_step(record, "", calls[1])
    assert "cat" in record.stack().key_tokens.text
    assert "dog" not in record.stack().key_tokens.text


def test_a_list_of_prompts_and_a_long_prompt(tmp_path: Path) -> None:
    pipe, call = make("FLUX", tmp_path)
    del call["prompt"]
    calls = [call | {"prompt": text} for text in (PROMPT, "a dog in snow " * 4)]
    records = extract(pipe, calls, steps="mean")
    assert "grass" in records[0].stack().key_tokens.text
    assert "snow" in records[1].stack().key_tokens.text
    assert "The prompt was truncated to the first 12 of its 17 tokens." in records[1].notes


def test_an_interrupt_at_any_line_leaves_the_pipeline_as_it_was(tmp_path: Path) -> None:
    """Interrupt at six random lines, and at the last six lines of cleanup.py that run."""
    pipe, call = make("FLUX", tmp_path)
    picture = run(pipe, call)
    subject = Subject(
        lambda _: extract(pipe, call | {"generator": generator()}, steps=0, progress=False)
    )
    lines = positions(subject, tmp_path, CHANGING)
    assert len(lines) > 100
    rng = np.random.default_rng(5)
    before, interrupts = state(pipe), 0
    restoration = positions(subject, tmp_path, ("cleanup.py",))
    for position in [*rng.choice(lines, 6, replace=False), *restoration[-6:]]:
        tracer = Tracer(position)
        with suppress(KeyboardInterrupt), tracer:
            subject.run(tmp_path)
        assert state(pipe) == before, tracer.raised
        interrupts += len(tracer.raised)
    # The first run fills caches, so later runs may have fewer lines.
    assert interrupts > 6
    assert np.array_equal(run(pipe, call), picture)


def test_files_and_views(tmp_path: Path) -> None:
    pipe, call = make("Stable Diffusion 1.5", tmp_path)
    view = av.show_head_view(pipe, call, steps=0, key="cat", stack="cross 8x6")
    assert not view.runs_model
    record = view.record
    record.save(tmp_path / "record.safetensors")
    loaded = av.load(tmp_path / "record.safetensors")
    stack, own = loaded.stacks["cross 8x6"], record.stacks["cross 8x6"]
    assert np.array_equal(stack.weights(layer=2), own.weights(layer=2))
    cell = own.query_tokens.grids[0].cell(own.query_tokens.text.index("5,3"))
    assert cell == (5, 3)


def test_refusals(tmp_path: Path) -> None:
    import diffusers
    from diffusers.models.attention_processor import SlicedAttnProcessor

    pipe, call = make("Stable Diffusion 1.5", tmp_path)
    with pytest.raises(IndexError, match=r"steps=7: the steps are 0 to 2"):
        extract(pipe, call, steps=7)
    with pytest.raises(ValueError, match="steps='last' must be numbers of steps"):
        extract(pipe, call, steps="last")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"run with its own arguments only\. Omit tokenizer"):
        extract(pipe, call, tokenizer=pipe.tokenizer)
    with pytest.raises(ValueError, match="output_type='latent' is no picture"):
        extract(pipe, call | {"output_type": "latent"})
    with pytest.raises(TypeError, match="only extract and the show functions read"):
        av.intervene(pipe, PROMPT, av.Ablate(layers=0))
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(TypeError, match="steps= selects steps of a pipeline of diffusers"):
        extract(model, "the cat", tokenizer=tokenizer, steps=1)
    # With two heads at a time, a part has as many rows as the batch.
    for size in (1, 2):
        pipe.unet.set_attn_processor(SlicedAttnProcessor(size))
        with pytest.raises(NotImplementedError, match=r"\(Attention with SlicedAttnProcessor\)"):
            extract(pipe, call)
    unconditional = diffusers.DDPMPipeline(
        diffusers.UNet2DModel(16, block_out_channels=(8, 16), norm_num_groups=4,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                    up_block_types=("AttnUpBlock2D", "UpBlock2D")),
        diffusers.DDPMScheduler(),
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match="DDPMPipeline has no encode_prompt"):
        extract(unconditional, "a cat")
