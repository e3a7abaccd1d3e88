"""Functions of attnviz take models, records and arrays that are on a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import attnviz as av
from attnviz import analysis
from attnviz.corpus.head_statistics import weights_hash
from attnviz.interventions import runner
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.linear import LinearAttention
from attnviz.record.masks import DistanceBias, compact_bias
from benchmarks import on_a_device
from model_types.build import tiny_model
from models.accelerator import DEVICE, PRETENDED, bytes_to_host, held, waits
from models.make_models import make_model
from models.test_chosen_keys import MODELS as CHOOSING
from models.tiny import arguments_of

pytestmark = pytest.mark.gpu

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 40]])
COUNT = IDS.shape[1]
PAIR = (7, 8)


def uniform(device: Any) -> torch.Tensor:
    """Return the weights of causal attention to all earlier tokens alike."""
    ones = torch.ones(COUNT, COUNT, device=device).tril()
    return ones / ones.sum(dim=-1, keepdim=True)


def set_weights(model: Any, device: Any) -> Any:
    change = av.SetWeights(weights=uniform(device), layers=1, heads=0)
    return av.intervene(model, IDS, change, answer=PAIR).effect.after


def set_weights_of_a_record(model: Any, _: Any) -> Any:
    change = av.SetWeights(weights=av.extract(model, IDS, device=None), layers=1, heads=0)
    return av.intervene(model, IDS.flip(1), change, answer=PAIR).effect.after


def erase(model: Any, device: Any) -> Any:
    ranking = torch.arange(float(COUNT), device=device, requires_grad=True)
    return av.erasure_curve(model, IDS, ranking, answer=PAIR, random_orders=2).values


def left_out(model: Any, device: Any) -> Any:
    keep = torch.arange(6, device=device) % 2 == 0
    return av.left_out(model, IDS, keep=keep, after=6).lost[1]


def attributions(model: Any, _: Any) -> Any:
    results = [
        av.attribute(model, IDS, method="value norm"),
        av.attribute(model, IDS, method="rollout"),
        av.attribute(model, IDS, method="gradient", answer=PAIR),
        av.attribute(model, IDS, method="integrated gradients", answer=PAIR),
        av.attribute(model, IDS, method="direct", answer=PAIR),
    ]
    return [result.stack().weights(layer=1) for result in results]


def effects(model: Any, _: Any) -> Any:
    changes = [
        av.Ablate(layers=1, heads=0),
        av.Knockout(layers=[0, 1], queries=-1, keys=3),
        av.HideTokens(2),
    ]
    return [
        av.head_effects(model, IDS, answer=PAIR).values,
        av.token_effects(model, IDS, answer=PAIR).values[:-1],
        *(av.intervene(model, IDS, change, answer=PAIR).effect.after for change in changes),
    ]


@pytest.mark.parametrize(
    "call", [set_weights, set_weights_of_a_record, erase, left_out, attributions, effects]
)
@pytest.mark.parametrize("kind", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_results_are_those_of_the_cpu(kind: str, call: Callable[[Any, Any], Any]) -> None:
    model = make_model(kind)
    expected = tree_leaves(call(model, "cpu"))
    for one, other in zip(tree_leaves(call(model.to(DEVICE), DEVICE)), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3 if PRETENDED is None else 1e-4)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("device", ["cpu", None])
@pytest.mark.parametrize(
    "kind",
    [
        "bart",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gpt2", "bert", "t5", "gemma2")),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("vit", "bloom")),
    ],
)
def test_inputs_may_be_on_either_device(kind: str, device: str | None, implementation: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation("eager" if kind == "gemma2" else implementation)
    arguments = arguments_of(kind)
    own = av.extract(model, arguments)
    model.to(DEVICE)
    moved = {name: value.to(DEVICE) for name, value in arguments.items()}
    for inputs in (arguments, moved):
        record = av.extract(model, inputs, device=device)
        for name, stack in own.stacks.items():
            for one, other in zip(record.to_numpy(name), own.to_numpy(name), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-3 if PRETENDED is None else 1e-5)
            # The masks are equal, in the same form.
            for layer in stack.layers:
                attentions = stack.attention(layer), record.stacks[name].attention(layer)
                assert all(isinstance(each, QueryKeyAttention) for each in attentions)
                of_cpu, of_device = (each.mask for each in attentions)
                assert (of_cpu is None) == (of_device is None)
                assert of_cpu is None or of_cpu.equals(of_device)


def test_a_record_on_a_device_can_be_used_everywhere(tmp_path: Path) -> None:
    model = make_model("llama")
    own = av.extract(model, IDS)
    record = av.extract(model.to(DEVICE), IDS, device=None)
    assert av.HeadView(record).to_html().count("<template") == av.HeadView(own).to_html().count(
        "<template"
    )
    record.save(tmp_path / "record.safetensors")
    loaded = av.load(tmp_path / "record.safetensors")
    np.testing.assert_allclose(loaded.to_numpy("self"), own.to_numpy("self"), atol=1e-4)
    assert np.max(av.compare(record, own).distance("self")) < 1e-3
    for name in ("previous token", "entropy"):
        for one, other in zip(
            *(analysis.head_scores(each, name) for each in (record, own)), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-3)


def test_arrays_of_the_caller_may_be_on_a_device() -> None:
    weights = torch.stack([uniform("cpu"), torch.eye(COUNT)])
    mask = torch.eye(COUNT, dtype=torch.bool)
    numbers = torch.arange(4.0)
    calls: list[Callable[[Any], Any]] = [
        lambda to: analysis.previous_token(to(weights)),
        lambda to: analysis.induction(to(weights), IDS[0].tolist(), allowed=to(mask)),
        lambda to: analysis.mass_on(to(weights), to(mask)),
        lambda to: analysis.mass_on([*to(weights)], to(mask)),
        lambda to: analysis.mass_on(to(weights).bfloat16(), to(mask)),
        lambda to: analysis.kendall_tau(to(numbers), to(numbers).cos()),
        lambda to: av.AttentionRecord.from_weights(to(weights)[None], list("abcdefghij")).to_numpy(
            "self"
        ),
    ]
    for call in calls:
        moved = call(lambda tensor: tensor.to(DEVICE).requires_grad_(tensor.is_floating_point()))
        np.testing.assert_allclose(moved, call(lambda tensor: tensor), atol=1e-6)


def test_queries_and_keys_on_two_devices_are_refused() -> None:
    vectors = torch.randn(1, 2, 4, 3)
    with pytest.raises(ValueError, match=r"queries\[0\] is on .*, but keys\[0\] on cpu"):
        av.AttentionRecord.from_qk(vectors.to(DEVICE), vectors)


def test_direct_attribution_of_a_model_on_two_devices() -> None:
    model = make_model("llama")
    expected = av.attribute(model, IDS, method="direct", answer=PAIR)
    model.to(DEVICE)
    layer = model.model.layers[1].to("cpu")

    def moved(tree: Any, device: Any) -> Any:
        return tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, tree)

    layer.register_forward_pre_hook(
        lambda _, args, kwargs: (moved(args, "cpu"), moved(kwargs, "cpu")), with_kwargs=True
    )
    layer.register_forward_hook(lambda _, __, output: moved(output, DEVICE))
    result = av.attribute(model, IDS, method="direct", answer=PAIR)
    np.testing.assert_allclose(result.to_numpy("self"), expected.to_numpy("self"), atol=1e-4)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("device", ["cpu", None])
@pytest.mark.parametrize(
    "kind", ["gpt2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "bert"))]
)
def test_an_extraction_waits_for_the_device_a_few_times(
    kind: str, device: str | None, implementation: str
) -> None:
    layers = {"n_layer" if kind == "gpt2" else "num_hidden_layers": 9}
    counts = []
    for model in (make_model(kind), make_model(kind, **layers)):
        model.set_attn_implementation(implementation)
        model.to(DEVICE)
        arguments = {"input_ids": IDS.to(DEVICE), "use_cache": False}
        with torch.no_grad():
            alone = waits(partial(model, **arguments))
        # The first extraction also looks for gates of heads.
        av.extract(model, IDS)
        counts.append(waits(partial(av.extract, model, IDS, device=device)) - alone)
    # The number of waits does not depend on the number of layers.
    assert counts[0] == counts[1] <= 5


def test_a_failed_check_on_a_device_names_its_layer() -> None:
    model, large = (make_model("llama", num_hidden_layers=4) for _ in range(2))
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[3, 5] = float("nan")
        large.model.layers[2].self_attn.q_proj.weight.mul_(1e6)
    for device in ("cpu", None):
        with pytest.raises(ValueError, match=r"layers\.1\.self_attn .*contain NaN or infinity"):
            av.extract(model.to(DEVICE), IDS, device=device)
        with pytest.raises(ValueError, match=r"numbers up to 65,504, and queries"):
            av.extract(large.to(DEVICE), IDS, device=device, dtype="float16")


def extractions(model: Any, _: Any) -> None:
    av.extract(model, IDS)
    av.extract(model, IDS, generate=3)
    av.extract(model, [IDS, IDS[:, :4]], outputs=True)


def corpora(model: Any, _: Any) -> None:
    av.head_statistics(model, [IDS, IDS.flip(1)])
    av.extract_corpus(model, [IDS, IDS.flip(1)])


def an_error(model: Any, _: Any) -> None:
    def stop(_: Any) -> Any:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        av.head_effects(model, IDS, answer=stop)


@pytest.mark.parametrize(
    "call",
    [
        extractions,
        effects,
        an_error,
        *(pytest.param(call, marks=pytest.mark.slow) for call in (corpora, attributions, erase)),
        *(pytest.param(call, marks=pytest.mark.slow) for call in (set_weights, left_out)),
    ],
)
def test_nothing_stays_on_the_device(call: Callable[[Any, Any], Any]) -> None:
    model = make_model("llama").to(DEVICE)
    before = held()
    call(model, DEVICE)
    assert held() == before


def test_a_bias_of_distances_is_found_on_the_device() -> None:
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    distances = slopes * (torch.arange(300) - torch.arange(300)[:, None])
    distances = distances.to(DEVICE)
    biases: list[Any] = []
    assert bytes_to_host(lambda: biases.append(compact_bias(distances))) <= 2 * 599 * 4
    assert isinstance(biases[0], DistanceBias)
    np.testing.assert_array_equal(
        biases[0].added(1, slice(0, 300), slice(0, 300)), distances[1].cpu()
    )


def test_numbers_are_read_together(tmp_path: Path) -> None:
    model = make_model("bert", num_attention_heads=24).to(DEVICE)
    # 72 heads, and an unchanged copy in each batch.
    assert waits(partial(av.head_effects, model, IDS, answer=PAIR)) < 36
    record = av.extract(model, IDS, device=None)
    assert waits(lambda: record.save(tmp_path / "record.safetensors")) == 2 * 3
    corpus = av.extract_corpus(model, [IDS, IDS.flip(1), IDS[:, :4]], device=None)
    corpus.points()
    assert waits(lambda: corpus.vectors(None, 1, [3])) == 2
    model.bfloat16()
    num_bytes = 2 * sum(parameter.numel() for parameter in model.parameters())
    assert bytes_to_host(lambda: weights_hash(model)) <= num_bytes


def test_batches_of_copies_follow_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2").to(DEVICE)
    ids = torch.arange(5, 65)[None]
    sizes: list[int] = []
    model.register_forward_pre_hook(
        lambda _, __, arguments: sizes.append(len(arguments["input_ids"])), with_kwargs=True
    )
    largest = {}
    effects = {}
    for free in (1 << 40, 1 << 20):
        module = getattr(torch, DEVICE.type)
        monkeypatch.setattr(module, "mem_get_info", lambda _, free=free: (free, 1 << 40))
        monkeypatch.setattr(runner, "_FEW_BYTES", 0)
        sizes.clear()
        effects[free] = np.stack(av.head_effects(model, ids, answer=PAIR).values)
        largest[free] = max(sizes)
    assert largest == {1 << 40: 5, 1 << 20: 2}
    np.testing.assert_allclose(effects[1 << 40], effects[1 << 20], atol=1e-4)


@pytest.fixture
def _deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("kind", ["gpt2", "bloom", "t5"])
def test_deterministic_algorithms(kind: str) -> None:
    model = make_model(kind)
    own = av.extract(model, arguments_of(kind))
    record = av.extract(model.to(DEVICE), arguments_of(kind), device=None)
    for name in own.stacks:
        np.testing.assert_allclose(record.to_numpy(name), own.to_numpy(name), atol=1e-3)
    analysis.head_scores(record, "entropy")


@pytest.mark.usefixtures("_deterministic")
def test_deterministic_algorithms_of_linear_layers() -> None:
    vectors = torch.randn(4, 2, 70, 8, generator=torch.Generator().manual_seed(0))

    def layer(numbers: torch.Tensor) -> LinearAttention:
        queries, keys, decay, strengths = numbers
        return LinearAttention(queries, keys, -decay.abs(), strengths[..., 0], erases=True)

    own, moved = layer(vectors), layer(vectors.to(DEVICE))
    rows = slice(0, 70)
    weights, expected = (layer.block([0, 1], rows).cpu().numpy() for layer in (moved, own))
    np.testing.assert_allclose(weights, expected, atol=1e-3)


def test_a_model_spread_over_two_devices(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="pip install accelerate")
    second = torch.device(DEVICE.type, 1)
    if getattr(torch, DEVICE.type).device_count() < 2:
        pytest.skip("needs two devices")
    model = make_model("llama")
    own = av.extract(model, IDS)
    effects = np.stack(av.head_effects(model, IDS, answer=PAIR).values)
    on_first = ("model.embed_tokens", "model.rotary_emb", "model.layers.0")
    on_second = ("model.layers.1", "model.layers.2", "model.norm", "lm_head")
    model = accelerate.dispatch_model(
        model, dict.fromkeys(on_first, DEVICE) | dict.fromkeys(on_second, second), DEVICE
    )
    for device in ("cpu", None):
        record = av.extract(model, IDS, device=device)
        np.testing.assert_allclose(record.to_numpy(), own.to_numpy(), atol=1e-3)
        attentions: list[Any] = [record.stack().attention(layer) for layer in range(3)]
        devices = {attention.queries.device for attention in attentions}
        assert devices == ({DEVICE, second} if device is None else {torch.device("cpu")})
    assert np.max(av.compare(record, own).distance("self")) < 1e-3
    record.save(tmp_path / "record.safetensors")
    av.ModelView(record).to_html()
    moved = np.stack(av.head_effects(model, IDS, answer=PAIR).values)
    np.testing.assert_allclose(moved, effects, atol=2e-3)
    # The backward pass of torch needs C++ to find the second pretended device.
    if PRETENDED is None:
        assert av.attribute(model, IDS, method="gradient", answer=PAIR).stack().num_layers == 3


def test_the_benchmark_of_a_device_runs() -> None:
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 2, "vocab_size": 60}
    settings = {**sizes, "bos_token_id": 1, "eos_token_id": 2}
    figures = on_a_device.measure((256,), 1, **settings)
    is_measured = ["not yet run" not in line for line in on_a_device.rows(figures)]
    # The heading, and the lines of 256 tokens. There are others of 1,024 tokens.
    assert is_measured == [True] * 5 + [False] * 4
    assert figures["256"]["plain_bytes"] <= figures["256"]["stays_bytes"]


def last_layer(record: Any) -> int:
    number: int = record.stack().layers[-1]
    return number


def saved(record: Any) -> Any:
    with TemporaryDirectory() as folder:
        record.save(Path(folder) / "record.safetensors")
        loaded: Any = av.load(Path(folder) / "record.safetensors")
    return [loaded.to_numpy(name) for name in loaded.stacks]


#: Uses of a record, by name. Results are arrays.
USES: dict[str, Callable[[Any], Any]] = {
    "scores": lambda record: [
        analysis.head_scores(stack, name)
        for stack in record.stacks.values()
        for name in analysis.measures_of(stack)
        if not stack.ranks
    ],
    "compare view": lambda record: av.CompareView(av.compare(record, record)).to_html().count("{"),
    "comparison": lambda record: av.compare(record, record).distance(record.stack().name),
    "pandas": lambda record: (
        record.to_pandas(layer=last_layer(record)).select_dtypes("number").to_numpy()
    ),
    "merged words": lambda record: record.merge_words().to_numpy(record.stack().name),
    "vectors": lambda record: [
        record.stack().queries(layer=last_layer(record), head=2),
        record.stack().keys(layer=last_layer(record), head=2),
    ],
    "saved": saved,
    "one layer": lambda record: record.only(layers=[last_layer(record)]).to_numpy(
        record.stack().name
    ),
    **{
        name: partial(
            lambda name, has_head, record: [
                getattr(stack, name)(layer=layer, **({"head": 0} if has_head else {}))
                for stack in record.stacks.values()
                for layer in stack.layers
                if not stack.ranks
            ],
            name,
            has_head,
        )
        for name, has_head in {
            "allowed": True,
            "left_out": True,
            "lost_weight": False,
            "gates": False,
        }.items()
    },
}


def linear_layers() -> Any:
    """Return a model with linear layers, and gates of heads in the other layers."""
    kinds = ["linear_attention", "full_attention"]
    settings = {"num_hidden_layers": len(kinds), "layer_types": kinds}
    return tiny_model("qwen3_next", "Qwen3NextForCausalLM", settings)


def mamba() -> Any:
    return tiny_model("bamba", "BambaForCausalLM", {})


def indexer() -> Any:
    """Return a model that chooses keys."""
    return tiny_model("deepseek_v32", "DeepseekV32ForCausalLM", {"index_topk": 4})


def blocks() -> Any:
    """Return a model that chooses blocks of keys."""
    return tiny_model("minimax_m3_vl_text", None, CHOOSING["minimax_m3_vl_text"])


def tree(result: Any) -> list[Any]:
    return [np.asarray(leaf, np.float64) for leaf in tree_leaves(result) if leaf is not None]


def assert_trees_close(result: Any, expected: Any, where: str) -> None:
    for one, other in zip(tree(result), tree(expected), strict=True):
        largest = float(np.nanmax(np.abs(other), initial=0))
        limit = (1e-4 if PRETENDED else 2e-3) * max(1.0, largest)
        np.testing.assert_allclose(one, other, atol=limit, rtol=0, err_msg=where)


@pytest.mark.parametrize(
    "make",
    [blocks, *(pytest.param(make, marks=pytest.mark.slow) for make in (linear_layers, indexer))],
)
def test_other_layers_are_copied_to_the_host(make: Callable[[], Any]) -> None:
    model = make()
    own: Any = av.extract(model, IDS)
    record: Any = av.extract(model.to(DEVICE), IDS)
    for name in own.stacks:
        assert_trees_close(record.to_numpy(name), own.to_numpy(name), name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [partial(make_model, "llama"), linear_layers, mamba, indexer, blocks]
)
def test_each_use_of_a_record_on_a_device(make: Callable[[], Any]) -> None:
    model = make()
    own = av.extract(model, IDS, device=None)
    record = av.extract(model.to(DEVICE), IDS, device=None)
    for name, use in USES.items():
        try:
            expected = use(own)
        except ValueError as error:
            # Linear layers have no vectors, and so on.
            with pytest.raises(ValueError, match=re.escape(str(error))):
                use(record)
        else:
            assert_trees_close(use(record), expected, name)


@pytest.mark.parametrize("make", [linear_layers, pytest.param(indexer, marks=pytest.mark.slow)])
def test_models_with_other_layers(make: Callable[[], Any]) -> None:
    """Linear layers, gates and indexers are read and changed on a device."""
    model = make()

    def results() -> dict[str, Any]:
        record: Any = av.extract(model, IDS, device=None)
        generated: Any = av.extract(model, IDS, generate=3, device=None)
        statistics = av.head_statistics(model, [IDS, IDS.flip(1)])
        results_by_name: dict[str, Any] = {
            "effects": av.head_effects(model, IDS, answer=PAIR).values,
            "tokens": av.token_effects(model, IDS, answer=PAIR).values[:-1],
            "value norms": av.attribute(model, IDS, method="value norm").to_numpy(),
            "gradients": av.attribute(model, IDS, method="gradient", answer=PAIR).to_numpy(),
            "direct": av.attribute(model, IDS, method="direct", answer=PAIR).to_numpy(),
        }
        for name, stack in record.stacks.items():
            results_by_name[f"{name} weights"] = record.to_numpy(name)
            if stack.ranks:
                continue
            results_by_name[f"{name} generated"] = generated.to_numpy(name)
            results_by_name[f"{name} statistics"] = statistics.stack(name).mean("entropy")
            for options in ({"factor": 0.0}, {"mean_of": [IDS.flip(1)]}):
                change = av.Ablate(layers=stack.layers[0], heads=0, stack=name, **options)
                effect = av.intervene(model, IDS, change, answer=PAIR).effect
                results_by_name[f"{name} {options}"] = effect.after
        return results_by_name

    expected = results()
    model.to(DEVICE)
    moved = results()
    assert moved.keys() == expected.keys()
    for name, numbers in expected.items():
        assert_trees_close(moved[name], numbers, name)


@pytest.mark.usefixtures("timm_wrapper")
def test_a_model_of_timm_on_a_device(timm: Any) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    pixels = torch.randn(1, 3, 64, 64)

    def results(device: Any) -> Any:
        inputs = ({"pixel_values": pixels}, {"pixel_values": pixels.to(device)})
        return [av.extract(model, each, device=None).to_numpy() for each in inputs]

    expected = results("cpu")
    model.to(DEVICE)
    assert_trees_close(results(DEVICE), expected, "weights")


def test_a_sentence_transformer_on_a_device(checkpoint_folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="pip install it")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    text = "The animal didn't cross the street."
    expected = av.extract(encoder, text).to_numpy()
    record: Any = av.extract(encoder.to(DEVICE), text, device=None)
    assert_trees_close(record.to_numpy(), expected, "weights")
    assert record.stack().attention(0).queries.device == DEVICE
