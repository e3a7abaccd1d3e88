"""Waits and copies of an extraction on a pretended device, printed as JSON.

`benchmarks.counts` runs this module in a separate process, because the device replaces functions of
torch (`tests/pretended_device.py`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import attnviz as av
import pretended_device


def main() -> None:
    """Print the counts of GPT-2 by their names."""
    torch.manual_seed(0)
    device = torch.device(pretended_device.NAME, 0)
    config = GPT2Config(n_embd=48, n_layer=12, n_head=4)
    model: Any = GPT2LMHeadModel(config).eval().to(device)
    ids = {"input_ids": torch.arange(64)[None].to(device)}
    counts = {}
    with torch.no_grad(), pretended_device.Traffic() as traffic:
        model(**ids, use_cache=False)
    counts["forward of GPT-2, 12 x 4, n=64, on a device: waits"] = traffic.waits
    for target in ("cpu", None):
        # The first extraction of a model also looks for gates of heads.
        av.extract(model, ids, device=target, progress=False)
        with pretended_device.Traffic() as traffic:
            av.extract(model, ids, device=target, progress=False)
        name = f"extraction of GPT-2, 12 x 4, n=64, device={target!r}"
        counts[f"{name}: waits"] = traffic.waits
        counts[f"{name}: bytes to the host"] = traffic.bytes("to host")
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main()
