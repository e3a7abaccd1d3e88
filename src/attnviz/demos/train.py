"""Train the demo models again: ``python -m attnviz.demos.train all --out FOLDER``.

On one core, from fixed seeds, on data that the script makes. Progress is on stderr; the scores on
held-out data, of the models as loaded again from the written files, are on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]


def _save(model: Any, reader: Any, folder: Path) -> None:
    """Write a model as float16, and what makes its inputs, into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    reader.save_pretrained(folder)
    # The weights are stored as float16 for size alone, and loaded as float32.
    config = folder / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(
        json.dumps({**settings, "dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
    )
    for file in folder.iterdir():
        # transformers lets only the owner read what it saves: not even a system-wide install could.
        file.chmod(0o644)


def _train(name: str, steps: int | None) -> tuple[Any, Any]:
    if name == "decoder":
        from attnviz.demos.recipes import decoder

        return decoder.train(steps)
    if name == "encoder-decoder":
        from attnviz.demos.recipes import encoder_decoder

        return encoder_decoder.train(steps)
    if name == "vision":
        from attnviz.demos.recipes import vision

        return vision.train(steps)
    from attnviz.demos.recipes import vision_language

    return vision_language.train(steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one demo model or all, save them and print their scores; the exit code is 0."""
    from attnviz.demos import NAMES

    parser = argparse.ArgumentParser(
        prog="python -m attnviz.demos.train",
        description="Train the demo models again, from fixed seeds, on one core.",
    )
    parser.add_argument("model", choices=[*NAMES, "all"], help="which one")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where each model gets a folder of its name (default: inside the package)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="other than the recipe's: a few, to try the script",
    )
    options = parser.parse_args(arguments)

    import torch

    from attnviz.demos.scores import scores

    # The sums of several threads differ in their last digits from run to run.
    torch.set_num_threads(1)
    for name in NAMES if options.model == "all" else (options.model,):
        before = time.process_time()
        model, reader = _train(name, options.steps)
        seconds = time.process_time() - before
        folder = options.out / name
        _save(model, reader, folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        sys.stdout.write(f"{name}: {seconds:.0f} s of CPU, {size / 1e3:.0f} kB in {folder}\n")
        again = type(model).from_pretrained(folder, dtype=torch.float32).eval()
        for score, value in scores(name, again, reader).items():
            sys.stdout.write(f"  {score}: {value:.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
