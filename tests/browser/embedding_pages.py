"""Corpus and point positions for the tests of the embedding view."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from playwright.sync_api import expect

import attnviz as av
from unit.random_corpora import attention

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.sync_api import Locator

TEXTS = (
    "[CLS] The cat saw the dog . The dog ran",
    "[CLS] it was too tired , the cat slept .",
    "[CLS] THE end .",
)
LAYERS, HEADS = 3, 4
# Margin around the points at the initial zoom, in pixels (embedding-scatter.ts).
MARGIN = 22


def prose(layers: int = LAYERS, heads: int = HEADS) -> av.Corpus:
    """Return a corpus of three texts with random vectors, a causal mask and a column "kind"."""
    records = []
    for number, text in enumerate(TEXTS):
        words = text.split(" ")
        made = {
            layer: attention(len(words), heads=heads, seed=100 * number + 10 * layer)
            for layer in range(layers)
        }
        tokens = av.Tokens.of(words, special=[word == "[CLS]" for word in words])
        stack = av.AttentionStack("self", made, tokens)
        records.append(av.AttentionRecord({"self": stack}, model="made"))
    return av.Corpus(records, columns={"kind": ["prose", "prose", "title"]})


def drawn(root: Locator, layer: str | int, stack: str = "self") -> None:
    """Wait until a head of a layer is drawn, or all heads (layer ``"all"``)."""
    expect(root).to_have_attribute("data-attnviz-drawn", f"embedding:{stack}:{layer}")


def one_head(corpus: av.Corpus, **traits: Any) -> av.EmbeddingView:
    """Return a view with layer 1, head 2 enlarged."""
    return av.EmbeddingView(corpus, layer=1, heads=[2], enlarged=True, **traits)


def coordinates(
    corpus: av.Corpus, layer: int = 1, head: int = 2, dimensions: int = 2
) -> NDArray[np.float32]:
    """Compute the principal components of a head for all texts, shape (points, dimensions).

    Queries and keys are scaled to the same median norm, and the keys are shifted to the mean of
    the queries. The directions come from a singular value decomposition. Their signs make the
    largest entry positive.
    """
    stacks = [record.stack() for record in corpus.records]
    queries, keys = (
        np.concatenate([np.asarray(part, np.float64) for part in parts])
        for parts in (
            [stack.queries(layer=layer, head=head) for stack in stacks],
            [stack.keys(layer=layer, head=head) for stack in stacks],
        )
    )
    assert len(queries) + len(keys) == len(corpus.points())
    factor = np.sqrt(
        np.median(np.linalg.norm(queries, axis=1)) / np.median(np.linalg.norm(keys, axis=1))
    )
    queries, keys = queries / factor, keys * factor
    points = np.concatenate([queries, keys + queries.mean(axis=0) - keys.mean(axis=0)])
    points -= points.mean(axis=0)
    directions = np.linalg.svd(points, full_matrices=False)[2][:dimensions]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    projected: NDArray[np.float32] = points @ (directions * np.sign(largest)).T
    return projected.astype(np.float32)


def pixel_positions(root: Locator, coordinates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the positions of points on the plot in pixels, at the initial zoom."""
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    room = np.array([box["width"], box["height"]])
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    scale = ((room / 2 - MARGIN) / ((high - low) / 2)).min()
    positions: NDArray[np.float64] = (coordinates - (low + high) / 2) * scale * (1, -1) + room / 2
    return positions


def isolated(positions: NDArray[np.float64]) -> list[int]:
    """Return the points whose nearest other point is more than 24 pixels away."""
    distances = np.hypot(*(positions[:, None] - positions[None]).transpose(2, 0, 1))
    np.fill_diagonal(distances, np.inf)
    return [int(point) for point in np.flatnonzero(distances.min(axis=1) > 24)]


def pixels(root: Locator, selector: str = ".av-plot .av-back") -> NDArray[np.int64]:
    """Return a canvas on a white background, shape (height, width, 3)."""
    url = root.locator(selector).first.evaluate(
        """canvas => {
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const pen = copy.getContext("2d");
          pen.fillStyle = "white";
          pen.fillRect(0, 0, copy.width, copy.height);
          pen.drawImage(canvas, 0, 0);
          return copy.toDataURL();
        }"""
    )
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB")).astype(np.int64)


def inked(canvas: NDArray[np.int64], kind: str) -> NDArray[np.bool_]:
    """Return a mask of the red pixels, for queries, or of the blue pixels, for keys."""
    red, blue = canvas[..., 0], canvas[..., 2]
    return red > blue + 30 if kind == "query" else blue > red + 30
