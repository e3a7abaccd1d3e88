"""`AttentionCallback` makes records during a training and does not change the losses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from attnviz.integrations import AttentionCallback

TOKENS, LENGTH = 64, 24


class RandomTexts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Texts of random tokens. The label of each position is the previous token."""

    def __len__(self) -> int:
        return 32 * 200

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(number)
        ids = torch.randint(TOKENS, (LENGTH,), generator=generator)
        # The model shifts labels by one. Therefore the prediction at position i is compared with
        # `labels[i + 1]`, which is `ids[i - 1]`.
        labels = torch.full_like(ids, -100)
        labels[2:] = ids[:-2]
        return {"input_ids": ids, "labels": labels}


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer for texts such as "3 14 15", in which each number below 64 is a token."""
    words = Tokenizer(models.WordLevel({str(number): number for number in range(TOKENS)}, "0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words)


def model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=TOKENS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, use_cache=False
    )
    return GPT2LMHeadModel(config)


def train(folder: Path, steps: int, *callbacks: AttentionCallback) -> tuple[Any, list[float]]:
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    trained = model()
    trainer = Trainer(
        model=trained, args=arguments, train_dataset=RandomTexts(), callbacks=list(callbacks)
    )
    trainer.train()
    return trained, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


TEXT = " ".join(str(7 * number % TOKENS) for number in range(LENGTH))


def logged(folder: Path) -> list[tuple[int, str, float]]:
    """Return the step, metric and value in each row of ``metrics.csv``."""
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [(int(row["step"]), row["metric"], float(row["value"])) for row in rows]


@pytest.mark.slow
def test_a_head_that_forms_appears_in_pages_and_metrics(tmp_path: Path) -> None:
    callback = AttentionCallback(TEXT, every=40, to=tmp_path / "log", tokenizer=tokenizer())
    trained, _ = train(tmp_path, 80, callback)
    folder = tmp_path / "log"
    pages = [path.relative_to(folder).as_posix() for path in folder.glob("**/*.html")]
    assert sorted(pages) == [
        "attention/text-0-all-steps/step-00000080.html",
        *(f"attention/text-0/step-{step:08d}.html" for step in (0, 40, 80)),
    ]
    scores = {
        step: score for step, metric, score in logged(folder) if metric.endswith("/previous token")
    }
    assert scores[0] < 0.4
    assert scores[80] > 0.8
    trained.set_attn_implementation("eager")
    ids = tokenizer()(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        weights = torch.stack(trained.eval()(ids, output_attentions=True).attentions)[:, 0]
    best = weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1).max().item()
    assert scores[80] == pytest.approx(best, abs=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without processes")
def test_two_processes_train_unaffected_and_one_writes(
    tmp_path: Path, run_in_two_processes: Callable[..., None]
) -> None:
    """The training "ddp" uses the Trainer. "fsdp" uses `fully_shard` and its own loop."""
    run_in_two_processes("training_processes.py", tmp_path)
    for kind in ("ddp", "fsdp"):
        for rank in range(2):
            result = json.loads((tmp_path / f"{kind}-{rank}.json").read_text())
            assert len(result["alone"]) == 2
            assert result["watched"] == result["alone"], kind
            assert result["shape"] == [2, 4, LENGTH, LENGTH]
            assert result["error"] < 1e-5, kind
        # If both processes wrote metrics, each row would occur twice.
        rows = [(step, metric) for step, metric, _ in logged(tmp_path / kind / "log")]
        assert len(rows) == len(set(rows))
        assert {step for step, _ in rows} == {0, 1, 2}


def steps_of(callback: AttentionCallback, *, is_first_process: bool) -> None:
    """Call the methods of a callback as the Trainer does in a training of three steps."""
    state = TrainerState(max_steps=3, is_world_process_zero=is_first_process)
    control, arguments, watched = TrainerControl(), TrainingArguments("unused"), model()
    callback.on_train_begin(arguments, state, control, model=watched)
    for step in range(1, 4):
        state.global_step = step
        callback.on_step_end(arguments, state, control, model=watched)
        callback.on_evaluate(arguments, state, control, model=watched)


def test_other_processes_keep_the_last_step_only(tmp_path: Path) -> None:
    callback = AttentionCallback(TEXT, every=1, to=tmp_path / "log", tokenizer=tokenizer())
    steps_of(callback, is_first_process=False)
    assert list(callback.records) == [3]
    assert not (tmp_path / "log").exists()


def test_without_an_active_run_it_warns_once_and_keeps_the_records() -> None:
    callback = AttentionCallback(TEXT, every=1, tokenizer=tokenizer())
    with pytest.warns(UserWarning, match="no tracker has an active run") as caught:
        steps_of(callback, is_first_process=True)
    assert len([warning for warning in caught if "no tracker" in str(warning.message)]) == 1
    assert sorted(callback.records) == [0, 1, 2, 3]


@pytest.mark.slow
def test_an_error_at_the_first_step_ends_the_training_and_later_ones_warn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens"):
        train(tmp_path, 1, AttentionCallback("1 " * 30, to=tmp_path, tokenizer=tokenizer()))
    folder = tmp_path / "log"
    callback = AttentionCallback(TEXT, every=1, to=folder, tokenizer=tokenizer())
    callback.on_train_begin = _then_blocked(callback.on_train_begin, folder)  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="AttentionCallback, step") as caught:
        _, losses = train(tmp_path, 2, callback)
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        "AttentionCallback, step 1",
        "AttentionCallback, step 2",
    ]
    assert len(losses) == 2


def _then_blocked(look: Any, folder: Path) -> Any:
    """Return a function that calls `look`, and then replaces the folder with a file."""

    def looked(*arguments: Any, **options: Any) -> None:
        look(*arguments, **options)
        folder.rename(folder.with_name("moved"))
        folder.write_text("in the way")

    return looked


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"every": 0}, "every"),
        ({"view": "model"}, "view must be a class"),
        ({"to": 7}, "to must be a run"),
    ],
)
def test_bad_arguments_are_refused_before_the_training(
    arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        AttentionCallback(**{"texts": TEXT} | arguments)
