"""Share of the rounding errors of effects that do not exceed their noise.

    PYTHONPATH=tests python -m benchmarks.noise [--held-out] [FOLDER OF A CHECKPOINT]...

The effects of heads, tokens and pairs of query and key are measured in float32, bfloat16 and
float16, and again in float64 with the same parameters. The difference is the rounding error. The
models are random models of several families, with sharpened attention, and the checkpoints. A
folder may be followed by a colon and the name of a GGUF file in it. With --held-out, only the
checkpoints are measured, on texts that were not used to choose the factor of the noise.

For each model and dtype, the columns are the number of effects, the share of errors that do not
exceed the noise, the median error, the median noise, the median size of an effect, and the share of
effects that do not exceed the noise.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

import attnviz as av
from models.make_models import make_model

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FAMILIES = ("gpt2", "llama", "bert", "t5", "bart")
LENGTHS = (6, 12, 20, 28)
TEXTS = (
    "When Mary and John went to the store, John gave a drink to",
    "The capital of France is Paris, and the capital of Italy is",
    "The animal did not cross the street because it was too",
    "one two three one two three one two",
    "def add(a, b): return a +",
)
HELD_OUT = (
    "The keys to the old cabinet in the kitchen",
    "Water boils at one hundred degrees, and it freezes at",
    "import numpy as np\nx = np.zeros((3, 4))\nprint(x.",
    "Oscar gave the book to Anna because she",
)
# A model with more layers than this is measured on two texts only.
MANY_LAYERS = 12
NUM_PAIRS = 8
#: Effects, and the noise of each effect.
Effects = tuple[NDArray[np.float64], NDArray[np.float64]]


def main() -> None:
    """Print a row for each model and dtype, and a row with all models for each dtype."""
    measured: dict[torch.dtype, list[NDArray[np.float64]]] = {dtype: [] for dtype in DTYPES}
    show("model | dtype | effects | errors below | error | noise | effect | effects below")
    for name, model, inputs in cases():
        for dtype in DTYPES:
            numbers = compared(model, inputs, dtype)
            measured[dtype].append(numbers)
            show(row(name, dtype, numbers))
    for dtype, parts in measured.items():
        show(row("all", dtype, np.concatenate(parts, axis=1)))


def show(line: str) -> None:
    """Write a line of the table at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def cases() -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the name, the float32 model and the inputs of each case."""
    held_out = "--held-out" in sys.argv
    generator = torch.Generator().manual_seed(0)
    for family in () if held_out else FAMILIES:
        inputs = []
        for length in LENGTHS:
            ids = torch.randint(3, 400, (1, length), generator=generator)
            decoder = {"decoder_input_ids": ids[:, :6]} if family in ("t5", "bart") else {}
            inputs.append({"input_ids": ids, **decoder})
        yield family, make_model(family), inputs
    for path in sys.argv[1:]:
        if path == "--held-out":
            continue
        folder, _, file = path.partition(":")
        gguf: dict[str, Any] = {"gguf_file": file} if file else {}
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **gguf)
        maker: Any = transformers.AutoModelForCausalLM if gguf else transformers.AutoModel
        model = maker.from_pretrained(folder, dtype=torch.float32, **gguf).eval()
        texts: tuple[str, ...] = HELD_OUT if held_out else TEXTS
        if model.config.num_hidden_layers > MANY_LAYERS and not held_out:
            texts = texts[:2]
        name = str(model.config.model_type)
        yield name, model, [dict(tokenizer(text, return_tensors="pt")) for text in texts]


def compared(model: Any, inputs: list[Any], dtype: torch.dtype) -> NDArray[np.float64]:
    """Return effects in `dtype`, their noise, and effects in float64, (3, effects)."""
    rounded = copy.deepcopy(model).to(dtype)
    exact = copy.deepcopy(rounded).double()
    parts = []
    for given in inputs:
        with torch.no_grad():
            logits = getattr(exact(**given), "logits", None)
        answer = None if logits is None else tuple(logits[0, -1].topk(2).indices.tolist())
        for effects in (head_effects, token_effects, pair_effects):
            values, noise = effects(rounded, given, answer)
            parts.append(np.stack([values, noise, effects(exact, given, answer)[0]]))
    return np.concatenate(parts, axis=1)


def head_effects(model: Any, given: Any, answer: Any) -> Effects:
    """Measure all heads, in batches."""
    effects = av.head_effects(model, given, answer=answer, progress=False)
    values = np.concatenate(effects.values)
    return values, np.full_like(values, effects.noise)


def token_effects(model: Any, given: Any, answer: Any) -> Effects:
    """Measure all tokens, in batches."""
    effects = av.token_effects(model, given, answer=answer, progress=False)
    values = effects.values[~np.isnan(effects.values)]
    return values, np.full_like(values, effects.noise)


def pair_effects(model: Any, given: Any, answer: Any) -> Effects:
    """Cut pairs of the last query in different heads, one at a time."""
    outline = av.extract(model, given, progress=False)
    stack = outline.stack(next(iter(outline.stacks)))
    rows = []
    for number in range(NUM_PAIRS):
        layer = stack.layers[number % len(stack.layers)]
        change = av.Knockout(
            -1,
            number % len(stack.key_tokens),
            layers=layer,
            heads=number % stack.num_heads(layer),
            stack=stack.name,
        )
        effect = av.intervene(model, given, change, answer=answer, progress=False).effect
        rows.append((effect.change, effect.noise))
    values, noise = np.array(rows).T
    return values, noise


def row(name: str, dtype: torch.dtype, numbers: NDArray[np.float64]) -> str:
    """Return a row of the table."""
    values, noise, exact = numbers
    errors = np.abs(values - exact)
    sizes = [f"{np.median(column):.1e}" for column in (errors, noise, np.abs(exact))]
    below = [f"{np.mean(column <= noise):.1%}" for column in (errors, np.abs(values))]
    cells = [str(dtype).removeprefix("torch."), str(len(values)), below[0], *sizes, below[1]]
    return " | ".join([name, *cells])


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main()
