"""What each of two processes does in `test_parallel.py`: torchrun starts it, results are files.

Every case is either what `extract` raised, or the weights that it gave.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from attnviz import Knockout, extract, extract_corpus, head_effects, intervene
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.gather import gathered
from attnviz.extraction.parallel import Processes

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5]])
PADDED = {
    "input_ids": torch.cat([torch.full((1, 8), 7), IDS]),
    "attention_mask": torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8]),
}


def tensor_parallel(folder: str) -> Any:
    """As transformers does it."""
    config = transformers.AutoConfig.from_pretrained(folder)
    kind: Any = transformers.LlamaForCausalLM
    assert config.num_attention_heads == 8
    return kind.from_pretrained(folder, tp_plan="auto")


def by_torch(model: Any, mesh: DeviceMesh) -> Any:
    """The same by torch alone."""
    plan: dict[str, ParallelStyle] = {
        "q_proj": ColwiseParallel(),
        "k_proj": ColwiseParallel(),
        "v_proj": ColwiseParallel(),
        "o_proj": RowwiseParallel(),
    }
    for layer in model.model.layers:
        parallelize_module(layer.self_attn, mesh, plan)
    return model


def by_hand(model: Any, shares: tuple[int, int], rank: int) -> Any:
    """Shares of the heads that differ, as other frameworks have them: plain tensors."""
    config = model.config
    size, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    start = sum(shares[:rank])
    heads = slice(start * size, (start + shares[rank]) * size)
    key_heads = slice(heads.start // group, heads.stop // group)

    def rows(layer: Any, some: slice) -> Any:
        layer.weight = torch.nn.Parameter(layer.weight[some].clone())
        return layer

    class Summed(torch.nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight.clone())

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            out = torch.nn.functional.linear(states, self.weight)
            dist.all_reduce(out)
            return out

    with torch.no_grad():
        for layer in model.model.layers:
            attention = layer.self_attn
            rows(attention.q_proj, heads)
            rows(attention.k_proj, key_heads)
            rows(attention.v_proj, key_heads)
            attention.o_proj = Summed(attention.o_proj.weight[:, heads])
    model._tp_size = 2
    return model


def sharded(model: Any, mesh: DeviceMesh) -> Any:
    """FSDP: all heads in each process, parameters gathered when they are used."""
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@contextmanager
def in_context_parallel(ids: torch.Tensor, mesh: DeviceMesh) -> Iterator[None]:
    with context_parallel(mesh, buffers=[ids], buffer_seq_dims=[1]):
        # The premise: this process has half of the tokens.
        assert ids.shape == (1, 4)
        yield


@contextmanager
def first_process_short_of_memory(rank: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            patch.setattr("attnviz.extraction.capture.memory.free_memory", lambda _: 1000)
        yield


@contextmanager
def first_process_keeps_nothing(rank: int) -> Iterator[None]:
    """An error in the middle of the forward: the other process waits for the rest of it."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            patch.setattr("attnviz.extraction.capture.collector.capture", fail)
        yield


class Attention(torch.nn.Module):
    """What `gathered` asks a module for: how many heads it has in all."""

    def __init__(self, **config: int) -> None:
        super().__init__()
        self.attention = torch.nn.Module()
        self.config = transformers.PretrainedConfig(hidden_size=64, **config)


def call_of(
    module: torch.nn.Module, whole: dict[str, torch.Tensor], heads: slice, key_heads: slice
) -> AttentionCall:
    return AttentionCall(
        module,
        "eager",
        whole["query"][:, heads],
        whole["key"][:, key_heads],
        whole["value"][:, key_heads],
        whole["mask"][:, heads] if whole["mask"].shape[1] > 1 else whole["mask"],
        {"position_bias": whole["bias"][:, heads], "s_aux": whole["sinks"][heads]},
        whole["output"][:, :, heads],
        added=(whole["slopes"][:, heads],),
    )


def whole_call(heads: int, key_heads: int, *, masks: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(heads)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "query": random(2, heads, 5, 4),
        "key": random(2, key_heads, 7, 4),
        "value": random(2, key_heads, 7, 3),
        "mask": random(1, masks, 5, 7),
        "bias": random(1, heads, 5, 7),
        "sinks": random(heads),
        "slopes": random(1, heads, 1, 7),
        "output": random(2, 5, heads, 3),
    }


def gather_calls(rank: int) -> None:
    """Whether what two processes have of a call becomes the call again, the same to the bit."""
    processes = Processes([0, 1], dist.group.WORLD)
    for shares, key_shares, masks in [
        ([(0, 2), (2, 4)], [(0, 2), (2, 4)], 1),
        ([(0, 4), (4, 6)], [(0, 2), (2, 3)], 6),
        # One key head, which both have.
        ([(0, 2), (2, 4)], [(0, 1), (0, 1)], 1),
        # Heads of one process each, where an axis of one may be of the heads or of none.
        ([(0, 1), (1, 2)], [(0, 1), (1, 2)], 1),
        ([(0, 1), (1, 2)], [(0, 1), (0, 1)], 2),
    ]:
        heads, key_heads = shares[-1][1], key_shares[-1][1]
        model = Attention(num_attention_heads=heads, num_key_value_heads=key_heads)
        whole = whole_call(heads, key_heads, masks=masks)
        part = call_of(model.attention, whole, slice(*shares[rank]), slice(*key_shares[rank]))
        made = gathered(part, processes, model, "attention")
        expected = call_of(model.attention, whole, slice(None), slice(None))
        pairs = [
            (getattr(made, name), getattr(expected, name))
            for name in ("query", "key", "value", "mask", "output")
        ]
        pairs += [(made.options[name], expected.options[name]) for name in expected.options]
        for one, other in [*pairs, (made.added[0], expected.added[0])]:
            assert torch.equal(one, other), (shares, key_shares)
    # A group of four heads and one of two: a key head for each head.
    model = Attention(num_attention_heads=6, num_key_value_heads=2)
    whole = whole_call(6, 2)
    part = call_of(
        model.attention, whole, slice(0, 4) if rank == 0 else slice(4, 6), slice(rank, rank + 1)
    )
    made = gathered(part, processes, model, "attention")
    assert made.key is not None
    assert torch.equal(made.key, whole["key"][:, [0, 0, 0, 0, 1, 1]])
    # Each process has all of them: a module that is not divided.
    part = call_of(model.attention, whole, slice(None), slice(None))
    assert gathered(part, processes, model, "attention") is part
    # Heads that are not all there.
    part = call_of(model.attention, whole, slice(rank, rank + 1), slice(0, 1))
    gathered(part, processes, model, "attention")


Case = Callable[[str, Callable[[], Any]], None]


def in_tensor_parallel(folder: str, out: Path, rank: int, case: Case) -> Any:
    """All that is asked of one model; returns it."""
    split = tensor_parallel(folder)
    # The premise: this process has half of the heads.
    assert split.model.layers[0].self_attn.q_proj.weight.to_local().shape == (32, 64)
    case("tensor_parallel", lambda: extract(split, IDS))
    case("tensor_parallel_padded", lambda: extract(split, dict(PADDED))[1])
    case("tensor_parallel_on_disk", lambda: extract(split, IDS, spool=out / "spool"))
    case("tensor_parallel_generated", lambda: extract(split, IDS[:, :4], generate=3))
    case(
        "corpus",
        lambda: extract_corpus(split, [IDS[:, :3], IDS], points=1000, progress=False).records[1],
    )
    case("corpus_on_disk", lambda: extract_corpus(split, [IDS], spool=out / "corpus"))
    case(
        "uneven",
        lambda: extract(
            by_hand(transformers.LlamaForCausalLM.from_pretrained(folder), (6, 2), rank), IDS
        ),
    )
    case("calls", lambda: gather_calls(rank))
    case("intervene", lambda: intervene(split, IDS, [Knockout(queries=1, keys=0)]))
    case("head_effects", lambda: head_effects(split, IDS))
    # What goes wrong in one process ends all, and the next extraction works.
    case("other_inputs", lambda: extract(split, (IDS + rank) % 100))
    case("no_such_token", lambda: extract(split, IDS + (1 - rank)))
    case("other_options", lambda: extract(split, IDS, layers=[rank]))
    case("spool_in_use", lambda: extract(split, IDS, spool=out / "spool"))
    with first_process_short_of_memory(rank):
        case("too_large", lambda: extract(split, IDS))
    with first_process_keeps_nothing(rank):
        case("fails_inside", lambda: extract(split, IDS))
    case("tensor_parallel_after_errors", lambda: extract(split, IDS))
    return split


def main(folder: str, out: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    found: dict[str, str] = {}

    def case(name: str, run: Callable[[], Any]) -> None:
        try:
            record = run()
        except (MemoryError, OSError, RuntimeError, ValueError, AssertionError) as error:
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = "read"
            np.save(out / f"{name}-{rank}.npy", np.stack(record.to_numpy()))

    def load(**options: Any) -> Any:
        return transformers.LlamaForCausalLM.from_pretrained(folder, **options)

    split = in_tensor_parallel(folder, out, rank, case)
    case("tensor_parallel_by_torch", lambda: extract(by_torch(load(), mesh), IDS))
    both = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    case(
        "tensor_parallel_and_fsdp",
        lambda: extract(sharded(by_torch(load(), both["tensor"]), both["data"]), IDS),
    )
    # Not sdpa: torch has no ring attention for processors. Eager runs, on half of the tokens.
    eager = load(attn_implementation="eager")
    ids = IDS.clone()
    with in_context_parallel(ids, mesh):
        case("context_parallel", lambda: extract(eager, ids))
        case("context_parallel_whole_text", lambda: extract(eager, IDS))
    staged = load()
    staged._pp_stage = SimpleNamespace(pp_size=2)
    case("pipeline_parallel", lambda: extract(staged, IDS))
    case("after_context_parallel", lambda: extract(eager, IDS))
    case("fsdp", lambda: extract(sharded(load(), mesh), IDS))
    ddp = torch.nn.parallel.DistributedDataParallel(load())
    case("ddp", lambda: extract(ddp, IDS))
    if rank == 0:
        case("ddp_alone", lambda: extract(ddp, IDS))
    dist.barrier()
    # The last one: nothing can be gathered after it.
    os.environ["ATTNVIZ_SPLIT_TIMEOUT"] = "1"
    if rank == 0:
        case("alone", lambda: extract(split, IDS))
    (out / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def ends_in_the_middle(folder: str, out: Path) -> None:
    """The second process ends while the model runs."""
    dist.init_process_group("gloo")
    split = tensor_parallel(folder)
    extract(split, IDS)
    if dist.get_rank() == 1:
        attention = split.model.layers[1].self_attn
        attention.register_forward_pre_hook(lambda *_: os._exit(0))
    try:
        extract(split, IDS)
    except (OSError, RuntimeError) as error:
        (out / "ended.txt").write_text(f"{type(error).__name__}: {error}")
    # torch would wait for the other one.
    os._exit(0)


if __name__ == "__main__":
    {"main": main, "ends": ends_in_the_middle}[sys.argv[3]](sys.argv[1], Path(sys.argv[2]))
