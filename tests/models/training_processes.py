"""torchrun starts this script in two processes for `test_training.py`.

Each process trains models without and with an `AttentionCallback`, and writes the losses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import TrainerControl, TrainerState

from attnviz.integrations import AttentionCallback
from models.test_training import TEXT, RandomTexts, model, tokenizer, train

STEPS = 2


def by_trainer(folder: Path, *callbacks: AttentionCallback) -> tuple[Any, list[float]]:
    """Train with the Trainer, which uses DDP under torchrun. Return the model and its losses."""
    return train(folder, STEPS, *callbacks)


def sharded(folder: Path, *callbacks: AttentionCallback) -> tuple[Any, list[float]]:
    """Train a model sharded with FSDP, and call the callbacks. Return the model and its losses."""
    del folder
    divided: Any = model()
    for block in divided.transformer.h:
        fully_shard(block)
    fully_shard(divided)
    optimizer = torch.optim.AdamW(divided.parameters(), lr=3e-3)
    data, losses = RandomTexts(), []
    state = TrainerState(max_steps=STEPS, is_world_process_zero=dist.get_rank() == 0)
    control: Any = TrainerControl()
    arguments: Any = None
    for callback in callbacks:
        callback.on_train_begin(arguments, state, control, model=divided)
    for step in range(STEPS):
        items = [data[64 * step + 32 * dist.get_rank() + number] for number in range(32)]
        loss = divided(
            **{name: torch.stack([item[name] for item in items]) for name in items[0]}
        ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        state.global_step = step + 1
        for callback in callbacks:
            callback.on_step_end(arguments, state, control, model=divided)
    return divided, losses


def main() -> None:
    folder = Path(sys.argv[1])
    for kind, trained_by in (("ddp", by_trainer), ("fsdp", sharded)):
        _, alone = trained_by(folder / kind / "alone")
        log = folder / kind / "log"
        callback = AttentionCallback(TEXT, every=1, to=log, tokenizer=tokenizer())
        trained, watched = trained_by(folder / kind, callback)
        # All processes must run the model, because each has only a part of a sharded model.
        trained.set_attn_implementation("eager")
        ids = tokenizer()(TEXT, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            own = torch.cat(trained.eval()(ids, output_attentions=True).attentions)
        captured = np.stack(callback.records[STEPS][0].to_numpy())
        result = {
            "alone": alone,
            "watched": watched,
            "shape": captured.shape,
            "error": float(np.abs(captured - own.numpy()).max()),
        }
        (folder / f"{kind}-{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
