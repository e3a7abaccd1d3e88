"""torchrun starts this script in two processes for `test_parallel.py`.

Each process writes, for each of its cases, the weights of the record or the error of `extract`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
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

from attnviz import extract

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5]])


def by_torch(model: Any, mesh: DeviceMesh) -> Any:
    """Split the heads of a Llama across processes with torch's own functions. Return the model."""
    plan: dict[str, ParallelStyle] = {
        "q_proj": ColwiseParallel(),
        "k_proj": ColwiseParallel(),
        "v_proj": ColwiseParallel(),
        "o_proj": RowwiseParallel(),
    }
    for layer in model.model.layers:
        parallelize_module(layer.self_attn, mesh, plan)
    return model


def sharded(model: Any, mesh: DeviceMesh) -> Any:
    """Shard the parameters of a Llama with FSDP. Each process still computes all heads."""
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@contextmanager
def in_context_parallel(ids: torch.Tensor, mesh: DeviceMesh) -> Iterator[None]:
    with context_parallel(mesh, buffers=[ids], buffer_seq_dims=[1]):
        # Each process has half of the eight tokens.
        assert ids.shape == (1, 4)
        yield


def main(folder: str, out: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    outcomes: dict[str, str] = {}

    def case(name: str, run: Callable[[], Any]) -> None:
        try:
            record = run()
        except NotImplementedError as error:
            outcomes[name] = f"{type(error).__name__}: {error}"
        else:
            outcomes[name] = "read"
            np.save(out / f"{name}-{rank}.npy", np.stack(record.to_numpy()))

    def load(**options: Any) -> Any:
        return transformers.LlamaForCausalLM.from_pretrained(folder, **options)

    split = load(tp_plan="auto")
    # Each process has half of the heads, and so 32 of the 64 rows of `q_proj`.
    assert split.model.layers[0].self_attn.q_proj.weight.to_local().shape == (32, 64)
    case("tensor_parallel", lambda: extract(split, IDS))
    case("tensor_parallel_by_torch", lambda: extract(by_torch(load(), mesh), IDS))
    plain = load()
    plain._tp_size = 2
    case("tensor_parallel_of_plain_tensors", lambda: extract(plain, IDS))
    both = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    case(
        "tensor_parallel_and_fsdp",
        lambda: extract(sharded(by_torch(load(), both["tensor"]), both["data"]), IDS),
    )
    # Use eager attention, because torch's SDPA for context parallel does not run on CPUs.
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
    (out / f"{rank}.json").write_text(json.dumps(outcomes))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
