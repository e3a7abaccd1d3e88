"""Draw docs/images/checkpoint*.webp, which show how induction heads form in training.

.venv/bin/python scripts/make_checkpoint_figure.py           train both models (minutes)
.venv/bin/python scripts/make_checkpoint_figure.py FOLDER    keep checkpoints there, or reuse them

The figure compares two models: one starts with random weights, and the demo decoder starts with an
induction circuit. For each checkpoint, the script measures the induction score of each head and the
loss. The texts consist of random words that are repeated once, and were not used in training. The
script also prints the numbers.
"""

from __future__ import annotations

import base64
import io
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Locator, sync_playwright
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import attnviz as av
from attnviz.analysis import head_scores, uniform_scores
from attnviz.pages.image import INSTALL_BROWSER, find_browser
from train_demos.__main__ import main as train
from train_demos.vocabulary import WORDS

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
MODELS = {"induction": "From random weights", "decoder": "The demo decoder: begins with a circuit"}
CHECKPOINTS = 12
TEXTS, WORDS_A_TEXT = 32, 16
# Other scripts use other seeds: training 1, 5, 20 and 22, and the scores of the demo models 1000.
SEED = 6
THUMBNAILS = 5

Numbers = NDArray[np.float64]

# Colours of the views, copied from js/src/ui/colors/palette.ts.
COLORS = {
    "light": {
        "ink": "#1c1f26",
        "muted": "#656c7a",
        "rule": "#dfe2e8",
        "background": "#ffffff",
        "layers": ("#b84812", "#143eca", "#178270"),
    },
    "dark": {
        "ink": "#eceef2",
        "muted": "#9ba2b0",
        "rule": "#343842",
        "background": "#17191e",
        "layers": ("#ffb70f", "#5a95ff", "#45e586"),
    },
}


@dataclass(frozen=True)
class Measured:
    """Measurements of all checkpoints of a model.

    Attributes
    ----------
    steps : list of int
        Number of training steps of each checkpoint.
    scores : ndarray, (checkpoints, layers, heads, texts)
        Induction scores.
    losses : ndarray, (checkpoints, texts)
        Mean loss in nats of the second half of each text, without its first word.
    baseline : float
        Induction score of uniform attention.
    head : (int, int)
        Layer and number of the head with the highest score at the end.
    weights : list of ndarray, (queries, keys)
        Weights of `head` in the first text, for each checkpoint.
    """

    steps: list[int]
    scores: Numbers
    losses: Numbers
    baseline: float
    head: tuple[int, int]
    weights: list[Numbers]


def held_out_texts() -> list[str]:
    """Return texts of 16 random words that are repeated once."""
    generator = np.random.default_rng(SEED)
    halves = [generator.permutation(WORDS)[:WORDS_A_TEXT].tolist() for _ in range(TEXTS)]
    return [" ".join(half + half) for half in halves]


def mean_and_error(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the mean over the last axis (texts) and the standard error of this mean."""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])


def measure(folder: Path, texts: Sequence[str]) -> Measured:
    """Measure the scores and losses of all checkpoints in a folder."""
    folders = sorted(folder.glob("step-*"))
    steps = [int(path.name.removeprefix("step-")) for path in folders]
    scores, losses, records = [], [], []
    for checkpoint in folders:
        model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        extracted = av.extract(model, list(texts), tokenizer=tokenizer, progress=False)
        records.append(extracted[0])
        scores.append(
            np.stack(
                [np.stack(head_scores(record.stack(), "induction")) for record in extracted], -1
            )
        )
        ids = tokenizer(list(texts), return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits
        # Only the second half is predictable, except for its first word.
        second = slice(WORDS_A_TEXT + 1, None)
        each_token = cross_entropy(logits[:, WORDS_A_TEXT:-1].mT, ids[:, second], reduction="none")
        losses.append(each_token.mean(dim=1).double().numpy())
    last = np.mean(scores[-1], axis=-1)
    layer, head = (int(index) for index in np.unravel_index(last.argmax(), last.shape))
    baseline = float(uniform_scores(records[0].stack(), "induction")[0][0])
    weights = [record.stack().weights(layer=layer, head=head) for record in records]
    return Measured(
        steps,
        np.array(scores),
        np.array(losses),
        baseline,
        (layer, head),
        [np.array(w) for w in weights],
    )


def report(name: str, measured: Measured) -> None:
    """Print for each checkpoint the highest score in each layer, and the loss."""
    print(f"{name}: uniform attention scores {measured.baseline:.3f}")
    scores, errors = mean_and_error(measured.scores)
    losses, loss_errors = mean_and_error(measured.losses)
    for number, step in enumerate(measured.steps):
        best = [
            f"{score[head]:.3f} ± {error[head]:.3f}"
            for score, error in zip(scores[number], errors[number], strict=True)
            for head in [int(score.argmax())]
        ]
        print(f"  step {step:4}: {', '.join(best)}; loss {losses[number]:.3f}", end="")
        print(f" ± {loss_errors[number]:.3f}")


# --- Drawing of the figure as SVG. All lengths and positions (x, y) are in pixels.

WIDTH, COLUMN, LEFT, PLOT = 900, 440, 52, 372
TOP, HIGH, LOW, GAP, THUMB = 62, 150, 100, 26, 66


def text(
    at: tuple[float, float], words: str, color: str, size: int = 12, anchor: str = "start"
) -> str:
    """Return a line of text as SVG."""
    x, y = at
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def path(points: Sequence[tuple[float, float]], **attributes: object) -> str:
    """Return a line through points as SVG."""
    line = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    markup = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<path d="M{line}"{markup}/>'


def thumbnail(weights: Numbers, color: str) -> str:
    """Return a picture of weights as a data URL. The opacity of a pixel is sqrt(weight)."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    pixels = np.zeros((*weights.shape, 4), np.uint8)
    pixels[..., :3] = (red, green, blue)
    pixels[..., 3] = np.round(255 * np.sqrt(weights))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def band(
    means: tuple[Numbers, Numbers], xs: Sequence[float], scale: tuple[float, float], color: str
) -> Iterator[str]:
    """Yield a line through means, and a band of two standard errors around the line, as SVG.

    `means` has the means and their standard errors. `scale` has the vertical position of the value
    0 and the number of pixels per unit.
    """
    values, errors = means
    bottom, per_unit = scale
    up = [(x, bottom - per_unit * y) for x, y in zip(xs, values + 2 * errors, strict=True)]
    down = [(x, bottom - per_unit * y) for x, y in zip(xs, values - 2 * errors, strict=True)]
    yield path([*up, *down[::-1]], fill=color, fill_opacity=0.25)
    line = [(x, bottom - per_unit * y) for x, y in zip(xs, values, strict=True)]
    yield path(line, fill="none", stroke=color, stroke_width=1.6)


def column(title: str, measured: Measured, x0: float, colors: dict[str, Any]) -> Iterator[str]:
    """Yield the SVG of one model: scores of all heads, losses, and weights of the best head."""
    ink, muted, rule = colors["ink"], colors["muted"], colors["rule"]
    left = x0 + LEFT
    xs = [left + PLOT * k / (len(measured.steps) - 1) for k in range(len(measured.steps))]
    bottom = TOP + HIGH
    layer, head = measured.head
    yield text((x0 + 8, 24), title, ink, 15)
    yield text((x0 + 8, 46), "Induction score of each head", ink)
    for value in (0, 0.5, 1):
        y = bottom - HIGH * value
        yield path([(left, y), (left + PLOT, y)], stroke=rule)
        yield text((left - 8, y + 4), f"{value:g}", muted, 11, "end")
    scores, errors = mean_and_error(measured.scores)
    baseline = bottom - HIGH * measured.baseline
    for number in range(scores.shape[1]):
        for head in range(scores.shape[2]):
            means = (scores[:, number, head], errors[:, number, head])
            yield from band(means, xs, (bottom, HIGH), colors["layers"][number])
    yield path([(left, baseline), (left + PLOT, baseline)], stroke=ink, stroke_dasharray="4 3")
    # Place the label above the baseline, where the lines of heads with low scores do not cross it.
    yield text((left + 6, baseline - 7), f"uniform attention: {measured.baseline:.2f}", muted, 11)
    for number in range(scores.shape[1]):
        x = left + PLOT - 62 * (scores.shape[1] - number)
        yield path([(x, 42), (x + 14, 42)], stroke=colors["layers"][number], stroke_width=2.5)
        yield text((x + 18, 46), f"layer {number}", muted, 11)

    low = bottom + GAP + LOW
    most = max(6.0, float(measured.losses.mean(axis=-1).max()))
    yield text((x0 + 8, bottom + GAP - 4), "Loss on the second half, nats a word", ink)
    for value in (0, 3, 6):
        y = low - (LOW - 12) * value / most
        yield path([(left, y), (left + PLOT, y)], stroke=rule)
        yield text((left - 8, y + 4), f"{value}", muted, 11, "end")
    yield from band(mean_and_error(measured.losses), xs, (low, (LOW - 12) / most), ink)
    for x, step in zip(xs, measured.steps, strict=True):
        yield text((x, low + 17), str(step), muted, 11, "middle")
    yield text((left + PLOT, low + 33), "training steps", muted, 11, "end")

    shown = thumbnails_of(scores[:, layer, head])
    y = low + 62
    yield text((x0 + 8, y - 12), f"Weights of head {layer}.{head}, one text", ink)
    for column, number in enumerate(shown):
        x = left + column * (PLOT - THUMB) / (len(shown) - 1)
        picture = thumbnail(measured.weights[number], colors["layers"][layer])
        box = f'x="{x}" y="{y}" width="{THUMB}" height="{THUMB}"'
        yield f'<image {box} href="{picture}" style="image-rendering: pixelated"/>'
        yield f'<rect {box} fill="none" stroke="{rule}"/>'
        yield text(
            (x + THUMB / 2, y + THUMB + 15), f"step {measured.steps[number]}", muted, 11, "middle"
        )


def thumbnails_of(scores: Numbers) -> list[int]:
    """Select `THUMBNAILS` checkpoints: the first, the last, and others between them.

    Between neighbouring selected checkpoints, the score changes by about the same amount.
    """
    way = np.concatenate([[0], np.cumsum(np.abs(np.diff(scores)))])
    chosen = {0, len(scores) - 1}
    for part in np.linspace(0, way[-1], THUMBNAILS)[1:-1]:
        rest = [checkpoint for checkpoint in range(1, len(scores) - 1) if checkpoint not in chosen]
        chosen.add(min(rest, key=lambda checkpoint: abs(float(way[checkpoint] - part))))
    return sorted(chosen)


def figure(measured: dict[str, Measured], theme: str) -> str:
    """Return the figure of both models as SVG."""
    colors: dict[str, Any] = COLORS[theme]
    height = TOP + HIGH + GAP + LOW + 62 + THUMB + 26
    marks = [
        mark
        for number, (name, model) in enumerate(measured.items())
        for mark in column(MODELS[name], model, number * (WIDTH - COLUMN), colors)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif"><rect width="100%" height="100%" '
        f'fill="{colors["background"]}"/>{"".join(marks)}</svg>'
    )


def compared(folder: Path, head: tuple[int, int]) -> av.CompareView:
    """Return a compare view of all checkpoints in a folder, with `head` selected."""
    folders = sorted(folder.glob("step-*"))
    half = "horse river lamp key snow goat bridge apple"
    names = [f"step {int(path.name.removeprefix('step-'))}" for path in folders]
    comparison = av.compare(folders, f"{half} {half}", names=names, name="From random weights")
    return av.CompareView(
        comparison, layer=head[0], heads=[head[1]], member=len(folders) - 1, form="matrix"
    )


def draw(measured: dict[str, Measured], view: av.CompareView) -> None:
    """Write the figure and a screenshot of the compare view, each in both themes."""
    browser_path = find_browser()
    if browser_path is None:
        sys.exit(f"pictures are drawn by a browser, and {INSTALL_BROWSER}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=2)
        wide = browser.new_page(viewport={"width": 1000, "height": 900})
        for theme in COLORS:
            page.set_content(f'<body style="margin: 0">{figure(measured, theme)}</body>')
            keep(page.locator("svg"), f"checkpoints-{theme}")
            view.theme = theme
            wide.goto(view.save(Path(folder, f"{theme}.html")).as_uri())
            wide.wait_for_selector("[data-attnviz-drawn]")
            keep(wide.locator("body"), f"checkpoint-view-{theme}")
        browser.close()


def keep(drawn: Locator, name: str) -> None:
    """Write a screenshot of an element as lossless WebP."""
    picture = Image.open(io.BytesIO(drawn.screenshot())).convert("RGB")
    picture.save(IMAGES / f"{name}.webp", lossless=True)


def main(arguments: list[str]) -> None:
    """Train the models whose checkpoints are missing, measure all checkpoints, and draw."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments[0] if arguments else temporary)
        texts = held_out_texts()
        measured = {}
        for name in MODELS:
            checkpoints = folder / f"{name}-checkpoints"
            if not checkpoints.exists():
                train([name, "--checkpoints", str(CHECKPOINTS), "--out", str(folder)])
            measured[name] = measure(checkpoints, texts)
            report(name, measured[name])
        draw(measured, compared(folder / "induction-checkpoints", measured["induction"].head))


if __name__ == "__main__":
    main(sys.argv[1:])
