"""Check that attnviz extracts the right attention from every model type of transformers.

Several tiny random models of each model type are built. The attention weights that attnviz extracts
are compared with those that the models themselves compute. A model to check is called a case (see
`model_types.cases`), and the result of its check is a row (see `model_types.rows`).

make coverage                                       check all types and write docs/coverage.md
PYTHONPATH=tests python -m model_types bert swin    check single types without writing the page
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from model_types.rows import Row

_PROCESSES = 2
_MAX_SECONDS = 120
_MAX_MEMORY = 12 << 30
# Modules that many checks need. They are imported once, before the processes are forked.
_COMMON = (
    "model_types.check",
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mamba.modeling_mamba",
    "transformers.models.mixtral.modeling_mixtral",
    "transformers.models.qwen2_vl.modeling_qwen2_vl",
    "transformers.models.t5.modeling_t5",
    "transformers.models.wav2vec2.modeling_wav2vec2",
)


def _complete_torchvision() -> None:
    """Make it possible to import torchvision if torch is a CPU build.

    The import needs two operators, which the compiled part of torchvision defines. In the package
    on PyPI, this part is built for CUDA and does not load with a CPU build of torch. Therefore
    declare the operators here. They need no implementation, because no model calls them.
    """
    import torch

    if torch.version.cuda is None and importlib.util.find_spec("torchvision"):
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )


def _work(model_type: str, answer: Connection) -> None:
    import torch
    import transformers

    from model_types.cases import cases_of
    from model_types.check import check

    # Limit the memory of the process, because a model may be too large by mistake.
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for case in cases_of(model_type):
            answer.send(check(case))
    answer.send(None)


def _rows(model_types: Sequence[str]) -> Iterator[Row]:
    """Check each model type in a separate process. Yield the row of each case when it is ready.

    If a process dies, or needs more than `_MAX_SECONDS` for a case, yield a row with the result
    "died" or "too slow", and skip the remaining cases of the model type.
    """
    # A forked process need not import transformers again. The import takes longer than most checks.
    context = multiprocessing.get_context("fork")
    waiting = list(model_types)[::-1]
    running: dict[str, tuple[BaseProcess, Connection, float]] = {}
    while waiting or running:
        while waiting and len(running) < _PROCESSES:
            model_type = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(target=_work, args=(model_type, theirs))
            process.start()
            theirs.close()
            running[model_type] = (process, ours, time.monotonic())
        for model_type, (process, ours, started) in list(running.items()):
            row: Row | None = None
            ended = False
            if ours.poll(0.01):
                try:
                    row = ours.recv()
                    ended = row is None
                    running[model_type] = (process, ours, time.monotonic())
                except EOFError:
                    process.join()
                    row = Row(model_type, result="died", reason=f"exit code {process.exitcode}")
                    ended = True
            elif time.monotonic() - started > _MAX_SECONDS:
                row = Row(model_type, result="too slow", reason=f"over {_MAX_SECONDS} s")
                ended = True
            if row is not None:
                yield row
            if ended:
                process.kill()
                process.join()
                ours.close()
                del running[model_type]


def main() -> None:
    """Check the model types that the command line names, or all if it names none.

    If the command line names model types, write the rows to test-results/coverage-some.json.
    Otherwise write them to test-results/coverage.json, check the names of tokens of all kinds of
    tokenizers and the trained checkpoints, and write docs/coverage.md.
    """
    # Call this before transformers is imported, because transformers imports torchvision.
    _complete_torchvision()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from model_types.checkpoints import checkpoint_rows
    from model_types.names import sweep
    from model_types.table import CHECKPOINTS, DOCUMENT, NAMES, RESULTS, table

    for name in _COMMON:
        importlib.import_module(name)
    model_types = sys.argv[1:] or list(CONFIG_MAPPING.keys())
    rows: list[Row] = []
    for row in _rows(model_types):
        rows.append(row)
        message = f"{row.result} {row.reason[:150]}" if row.reason else row.result
        done = 1 + model_types.index(row.model_type)
        name = " ".join(filter(None, (row.model_type, row.kind, row.flag)))
        print(f"{done}/{len(model_types)} {name}: {message}", flush=True)  # noqa: T201
    rows.sort(key=lambda row: row.model_type.lower())
    results = RESULTS if len(sys.argv) == 1 else RESULTS.with_stem("coverage-some")
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if len(sys.argv) == 1:
        names = list(sweep())
        NAMES.write_text(json.dumps([asdict(row) for row in names], indent=1))
        checkpoints = list(checkpoint_rows())
        CHECKPOINTS.write_text(json.dumps([asdict(row) for row in checkpoints], indent=1))
        DOCUMENT.write_text(table(rows, names, checkpoints))


if __name__ == "__main__":
    main()
