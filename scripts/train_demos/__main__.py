"""Train the demo models: ``cd scripts && python -m train_demos all --out FOLDER``.

Training uses one core, fixed seeds and generated data. The script prints progress to stderr. After
a model is saved, the script loads it again and prints its scores on held-out data to stdout.

With ``--checkpoints 12``, the script also stores twelve checkpoints, each in a folder that
transformers can load. With ``--checkpoints 0,100,900``, it stores checkpoints after these steps.
The trained model is the same with and without checkpoints. A "reader" is a tokenizer or processor.
The checkpoints in the package are those of

    python -m train_demos induction --checkpoints 0,100,200,300,480 --out FOLDER

Tests check the scores. They find heads by their pattern and not by their number, so a model that is
trained again passes, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from attnviz import demos
from train_demos.fitting import Checkpoints
from train_demos.scores import scores

# Models that can be trained. The package has the trained models `demos.NAMES`. It also has
# checkpoints of the model "induction".
MODELS = (*demos.NAMES, "induction")


def _save(model: Any, reader: Any, folder: Path) -> None:
    """Write the weights of a model as float16, and its reader, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    reader.save_pretrained(folder)
    # The files are smaller with float16. The dtype in the configuration makes transformers load the
    # weights as float32.
    config = folder / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(
        json.dumps({**settings, "dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
    )
    for file in folder.iterdir():
        # By default, only the owner can read the files that transformers writes.
        file.chmod(0o644)


def recipe(name: str) -> Any:
    """Return the module that trains a model. It has `SCHEDULE` and `train`."""
    return import_module(f"train_demos.{name.replace('-', '_')}")


def checkpoint_steps(steps: int, count: int) -> tuple[int, ...]:
    """Return the numbers of steps after which `count` checkpoints are stored.

    The numbers grow quadratically from 0 to `steps`, because a model changes most at the beginning
    of training. Raise ValueError if `count` is less than 2 or more than ``steps + 1``.

    >>> checkpoint_steps(900, 6)
    (0, 36, 144, 324, 576, 900)
    """
    if not 2 <= count <= steps + 1:
        raise ValueError(
            f"the number of checkpoints must be 2 (before and after training) to {steps + 1} (one "
            f"more than there are steps); got {count}"
        )
    chosen = [0]
    for number in range(1, count):
        # Neighbouring squares may be rounded to the same number, so use at least the last number +
        # 1.
        chosen.append(max(round(steps * (number / (count - 1)) ** 2), chosen[-1] + 1))
    return tuple(chosen)


def _wanted_steps(option: str, steps: int) -> tuple[int, ...]:
    """Parse the value of ``--checkpoints``: a number of checkpoints, or a list of steps."""
    if "," not in option:
        return checkpoint_steps(steps, int(option))
    chosen = tuple(map(int, option.split(",")))
    if list(chosen) != sorted(set(chosen)) or chosen[0] < 0 or chosen[-1] != steps:
        raise ValueError(f"steps must rise from 0 or later to the last, {steps}; got {option}")
    return chosen


def _save_checkpoints(models: Mapping[int, Any], reader: Any, folder: Path) -> None:
    """Write each checkpoint into a folder. The names of the folders sort in the order of steps."""
    digits = len(str(max(models)))
    for step, model in models.items():
        _save(model, reader, folder / f"step-{step:0{digits}}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m train_demos",
        description="Train the demo models again, from fixed seeds, on one core.",
    )
    parser.add_argument(
        "model",
        choices=[*MODELS, "all"],
        help=f"which one; all: {', '.join(demos.NAMES)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where each model gets a folder of its name (default: inside the package)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="other than the recipe's: a few, to try the script",
    )
    parser.add_argument(
        "--checkpoints",
        metavar="N",
        help="also keep the model N times, from before training to its end, closer together at "
        "the beginning, or after these steps (0,100,480): in FOLDER/MODEL-checkpoints/step-...; "
        "needs --out",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one demo model or all, save them, and print their scores. Return 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = demos.NAMES if options.model == "all" else (options.model,)
    # The default folder is in the package, which has no checkpoints or other models.
    if options.out is None and (options.checkpoints is not None or names[0] not in demos.NAMES):
        what = "--checkpoints" if options.checkpoints is not None else repr(options.model)
        parser.error(f"{what} needs --out FOLDER: the package contains trained models alone")
    out: Path = options.out or Path(demos.__file__).parent

    kept: dict[str, Checkpoints] = {}
    if options.checkpoints is not None:
        for name in names:
            folder = out / f"{name}-checkpoints"
            if folder.exists() and any(folder.iterdir()):
                parser.error(f"{folder} is not empty: remove it, or give another --out")
            steps = recipe(name).SCHEDULE.steps if options.steps is None else options.steps
            try:
                kept[name] = Checkpoints(_wanted_steps(options.checkpoints, steps))
            except ValueError as error:
                parser.error(f"--checkpoints: {error}")
    # With several threads, sums would differ in their last digits between runs.
    torch.set_num_threads(1)
    for name in names:
        before = time.process_time()
        model, reader = recipe(name).train(options.steps, kept.get(name))
        seconds = time.process_time() - before
        folder = out / name
        _save(model, reader, folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        sys.stdout.write(f"{name}: {seconds:.0f} s of CPU, {size / 1e3:.0f} kB in {folder}\n")
        if name in kept:
            folder = out / f"{name}-checkpoints"
            _save_checkpoints(kept[name].models, reader, folder)
            steps_done = ", ".join(map(str, kept[name].models))
            sys.stdout.write(f"  checkpoints after {steps_done} steps in {folder}\n")
        again = type(model).from_pretrained(out / name, dtype=torch.float32).eval()
        for score, value in scores(name, again, reader).items():
            sys.stdout.write(f"  {score}: {value:.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
