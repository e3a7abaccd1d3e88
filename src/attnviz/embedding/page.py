"""Exported HTML page of an embedding view.

For each head the page contains the first two principal components of each point as 16-bit codes
(see `attnviz.embedding.server.plots.coded`), the norm of each point as one byte, the mean weight
for each pair of bins of query and key positions as one byte, and the trust figures (see
`attnviz.embedding.trust`). With `top_keys` the page also contains the strongest keys of each query.
``js/src/views/embedding/client/page.ts`` reads the page. The tests of both languages read
``tests/fixtures/embedding.json``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.description import describe_corpus, packed_points
from attnviz.embedding.server.plots import EmbeddingAnswers, HeadPlot, Plot, PlotOptions, coded
from attnviz.embedding.server.weights import AggregateHeader, aggregate, top_keys
from attnviz.pages.html import FORMAT, document
from attnviz.pages.limits import check_top_keys, code_too_large_message, format_megabytes
from attnviz.pages.packing import packed
from attnviz.pages.picture import (
    MAX_PICTURE_BYTES,
    SIDES,
    Cells,
    add_title,
    draw_grid,
)
from attnviz.record.storage.mapped import check_mapped
from attnviz.utils.arguments import format_named
from attnviz.utils.progress import part_of, report, show_progress
from attnviz.utils.threads import torch_threads

#: Default maximum size of a page, in bytes. Larger pages open slowly.
MAX_BYTES = 40_000_000
#: Example value of `top_keys`. A page without strongest keys states how many bytes it would add.
SHOWN_KEYS = 5

#: Coordinates of the points of each head, by layer and head: arrays of shape (2, points) with
#: values 0 to 255. None for a head without a plot.
_Planes = dict[tuple[int, int], NDArray[np.uint8] | None]

_BINS = 32
# Number of heads whose strongest keys are computed to estimate the size of the keys of all heads.
_HEADS_TRIED = 4
# Estimated smallest ratio of compressed to uncompressed size of points and keys. A page that would
# be too large even at this ratio is refused before anything is computed. Random vectors do not
# compress, so their ratio is 1.
_MIN_DEFLATED_SHARE = 0.6
# Estimated size in bytes of a head's other data: the trust figures, the mean weights by position,
# and the box that contains the points.
_BYTES_OF_A_HEAD = 1_200

# Colours of the cells of a picture: the background, three densities of queries, and three densities
# of keys. They are the colours of the light theme in palette.ts.
_QUERY_KEY_COLORS = 255 - np.array(
    [
        (0, 0, 0),
        *(np.array([71, 183, 237]) * share for share in (0.4, 0.7, 1.0)),
        *(np.array([235, 193, 53]) * share for share in (0.4, 0.7, 1.0)),
    ]
)

Codes = NDArray[np.uint8]


@show_progress("page")
def make_embedding_page(
    answers: EmbeddingAnswers,
    state: Mapping[str, Any],
    *,
    top_keys: int = 0,
    max_bytes: int | None = MAX_BYTES,
    wait: bool = True,
) -> str:
    """Build the page of an embedding view.

    Parameters
    ----------
    answers : EmbeddingAnswers
        Source of the plots and trust figures, shared with the live view.
    state : mapping
        Traits of the view, as JSON values.
    top_keys : int, default 0
        Number of strongest keys to embed per query.
    max_bytes : int, optional
        Maximum size of the page in bytes. None sets no limit.
    wait : bool, default True
        Whether to wait until the projection of the enlarged head is finished. Otherwise the page
        contains its newest frame. If it has no frame, the page shows the principal components.
    """
    top_keys = check_top_keys(top_keys)
    corpus = answers.corpus
    check_mapped({file for record in corpus.records for file in record.mapped_files})
    bare = len(document(corpus.model, "embedding", state, {}).encode())
    if max_bytes is not None:
        if bare > max_bytes:
            raise ValueError(code_too_large_message(max_bytes, bare))
        points, keys = _expected(corpus, top_keys)
        if bare + _MIN_DEFLATED_SHARE * (points + keys) > max_bytes:
            size = bare + MAX_PICTURE_BYTES + len(_heads(corpus)) * _BYTES_OF_A_HEAD + points + keys
            raise ValueError(_too_large(corpus, (points, keys), max_bytes, size, estimated=True))
    placing = _placing(state)
    # Projections may fail. They come first, so that a failure is reported before the rest of the
    # page is computed, which takes seconds.
    shown = _embedded_projections(answers, state, placing, wait=wait)
    state = dict(state)
    if not shown and (state["method"], state["dimensions"]) != ("pca", 2) and not wait:
        # The projection has no frame yet, so the page shows the principal components.
        state |= {"method": "pca", "dimensions": 2}
    stacks = [_embedded_stack(answers, name, placing, top_keys) for name in corpus.stack_names]
    description = describe_corpus(corpus)
    keys_add = None if top_keys else _estimate_keys(corpus)
    data = {
        "format": FORMAT,
        "view": "embedding",
        "state": state,
        "description": description,
        "blocks": [],
        "maps": [],
        "scores": [],
        "embedding": {
            "placing": asdict(placing),
            "top_keys": top_keys,
            "top_keys_add": keys_add,
            "stacks": stacks,
            "projections": shown,
        },
    }
    still = add_title(corpus.model, "embedding", _figure(corpus, state["stack"], stacks))
    page = document(corpus.model, "embedding", state, data, still)
    size = len(page.encode())
    if max_bytes is not None and size > max_bytes:
        raise ValueError(_too_large(corpus, _embedded(stacks), max_bytes, size))
    return page


def _placing(state: Mapping[str, Any]) -> Placing:
    return Placing(state["scaling"], state["translate"], state["lift"])


def _embedded_stack(
    answers: EmbeddingAnswers, name: str, placing: Placing, count: int
) -> dict[str, Any]:
    corpus = answers.corpus
    layers = corpus.stack(name).layers
    embedded = []
    for done, layer in enumerate(layers):
        with part_of(f"layers of {name}", done, len(layers)):
            embedded.append(_embedded_layer(answers, name, layer, placing, count))
    return {
        "stack": name,
        "corpus": base64.b64encode(packed_points(corpus, name)).decode("ascii"),
        "count": len(corpus.points(name)),
        "layers": embedded,
    }


def _embedded_layer(
    answers: EmbeddingAnswers, name: str, layer: int, placing: Placing, count: int
) -> dict[str, Any]:
    corpus = answers.corpus
    heads = range(corpus.stack(name).num_heads(layer))
    # For the progress bar: plots, trust figures, means by position and strongest keys, in this
    # order.
    parts = 4.0
    with part_of("plots", 0, parts):
        plots = answers.plots(name, layer, heads, placing)
    headers, planes = [], []
    for head, plot in zip(heads, plots, strict=True):
        low, size, codes = coded(plot.coordinates)
        header = plot.header()
        headers.append(
            {"head": head, "low": low, "size": size}
            | {key: header[key] for key in ("explained", "factor", "problem")}
        )
        planes.append(codes.T)
    together = np.stack(planes, axis=1)
    options = PlotOptions(name, layer, placing, "pca", 2)
    with part_of("trust", 1, parts):
        trust = answers.trust(options, heads)
    norms = _embedded_norms(answers, name, layer, heads)
    with part_of("means", 2, parts):
        means = _embedded_aggregate(corpus, name, layer, heads)
    keys = None
    if count:
        with part_of("keys", 3, parts):
            keys = _keys(corpus, name, layer, heads, count)
    report("layers", parts, parts)
    return {
        "layer": layer,
        "heads": headers,
        # All high bytes come before all low bytes, because similar bytes in a row compress better.
        "points": packed(
            np.concatenate([together >> 8, together & 255]).astype(np.uint8).tobytes()
        ),
        "norms": norms,
        "trust": trust,
        "aggregate": means,
        "keys": None if keys is None else packed(keys.tobytes()),
    }


def _embedded_norms(
    answers: EmbeddingAnswers, name: str, layer: int, heads: Sequence[int]
) -> dict[str, Any]:
    lows, highs, codes = [], [], []
    for head in heads:
        with torch_threads(1):
            header, data = answers.norms(name, layer, head)
        lows.append(header["low"])
        highs.append(header["high"])
        # Dividing a 16-bit code by 257 gives an 8-bit code: 65,535 / 257 is 255.
        codes.append(np.rint(np.frombuffer(data, "<u2") / 257).astype(np.uint8))
    return {"low": lows, "high": highs, "data": packed(np.concatenate(codes).tobytes())}


def _embedded_aggregate(
    corpus: Corpus, name: str, layer: int, heads: Sequence[int]
) -> dict[str, Any]:
    header: AggregateHeader | None = None
    maxima: list[float] = []
    codes_of_heads: list[Codes | None] = []
    for done, head in enumerate(heads):
        report("mean weights", done, len(heads), "head")
        try:
            with torch_threads(1):
                means = aggregate(corpus, name, layer, head, _BINS)
        except ValueError:
            # Some weights are not finite. The page has no means for this head, and its plot states
            # the problem.
            maxima.append(0.0)
            codes_of_heads.append(None)
            continue
        header = means.header()
        maximum = max(0.0, float(means.weights.max()))
        shares = np.sqrt(np.clip(means.weights, 0.0, None) / (maximum or 1.0))
        codes = np.where(means.weights < 0, 0, 1 + np.rint(254 * shares)).astype(np.uint8)
        maxima.append(maximum)
        codes_of_heads.append(codes)
    if header is None:
        header = {
            "rows": 1,
            "columns": 1,
            "query_edges": [0, 1],
            "key_edges": [0, 1],
            "texts": 0,
            "of_texts": 0,
            "queries": 0,
            "of_queries": 0,
        }
    blank = np.zeros((header["rows"], header["columns"]), np.uint8)
    data = b"".join((blank if codes is None else codes).tobytes() for codes in codes_of_heads)
    return {**header, "maximum": maxima, "data": packed(data)}


def _keys(corpus: Corpus, name: str, layer: int, heads: Sequence[int], count: int) -> Codes:
    """Return the `count` strongest keys of each query, (3, heads, count, queries).

    The first axis has the weight, the low byte and the high byte of the key's index. A weight is
    coded as 255 times its square root. Heads whose weights are not finite have zeros.
    """
    planes = np.zeros((3, len(heads), count, corpus.points(name).num_queries), np.uint8)
    for index, head in enumerate(heads):
        report("strongest keys", index, len(heads), "head")
        try:
            with torch_threads(1):
                weights, keys = top_keys(corpus, name, layer, head, count)
        except ValueError:
            continue
        planes[0, index] = np.rint(255 * np.sqrt(np.clip(weights, 0.0, 1.0)))
        planes[1, index], planes[2, index] = keys & 255, keys >> 8
    return planes


def _estimate_keys(corpus: Corpus) -> dict[str, int]:
    """Estimate how many bytes the strongest keys of all heads would add to a page.

    The estimate is extrapolated from `_HEADS_TRIED` heads.
    """
    heads = _heads(corpus)
    # Heads at equal distances, from the first head to the last one of all stacks.
    indices = np.linspace(0, len(heads) - 1, min(_HEADS_TRIED, len(heads)))
    tried = [heads[round(index)] for index in indices]
    num_bytes = 0
    for done, (name, layer, head) in enumerate(tried):
        with part_of("keys", done, len(tried), "head"):
            keys = _keys(corpus, name, layer, [head], SHOWN_KEYS)
        num_bytes += len(packed(keys.tobytes()))
    return {"count": SHOWN_KEYS, "bytes": round(num_bytes * len(heads) / len(tried))}


def _heads(corpus: Corpus) -> list[tuple[str, int, int]]:
    return [
        (name, layer, head)
        for name in corpus.stack_names
        for layer in corpus.stack(name).layers
        for head in range(corpus.stack(name).num_heads(layer))
    ]


def _embedded_projections(
    answers: EmbeddingAnswers, state: Mapping[str, Any], placing: Placing, *, wait: bool
) -> list[dict[str, Any]]:
    """Return the plots of the selected method and dimensions that the page contains.

    For t-SNE and UMAP these are the plots of all heads of the stack that have at least one frame.
    For three principal components, it is only the plot of the enlarged head. Two principal
    components are in every page, so the list is then empty.
    """
    method, dimensions = state["method"], state["dimensions"]
    if (method, dimensions) == ("pca", 2):
        return []
    heads = [entry for entry in _heads(answers.corpus) if entry[0] == state["stack"]]
    own = [head for _, layer, head in heads if layer == state["layer"]]
    enlarged = state["heads"][0] if state["heads"] else own[0]
    settings = {name: state[name] for name in ("perplexity", "neighbors", "seed")}
    projections = []
    if method == "pca":
        heads = [(state["stack"], state["layer"], enlarged)]
    for done, (name, layer, head) in enumerate(heads):
        report("projections", done, len(heads), "head")
        options = PlotOptions(name, layer, placing, method, dimensions, **settings)
        is_shown = (layer, head) == (state["layer"], enlarged)
        plot, header = _current_plot(
            answers, options.of(head), wait=wait and is_shown and state["enlarged"]
        )
        if plot is None:
            continue
        with part_of("projections", done, len(heads), "head"):
            [trust] = answers.trust(options, [head])
        low, size, codes = coded(plot.coordinates)
        projections.append(
            {"method": method, "dimensions": dimensions, **settings}
            | {"stack": name, "layer": layer, "head": head}
            | {"header": header | {"low": low, "size": size, "parts": 1}, "trust": trust}
            | {"data": packed(codes.astype("<u2").tobytes())}
        )
    return projections


def _current_plot(
    answers: EmbeddingAnswers, asked: HeadPlot, *, wait: bool
) -> tuple[Plot | None, dict[str, Any]]:
    """Return the current plot of a head and its header, or None and an empty header.

    Principal components are computed. A projection by t-SNE or UMAP is only looked up, unless
    `wait` is True.
    """
    if asked.method == "pca" or wait:
        plot, work = answers.plot(asked, wait=wait)
        return plot, plot.header() | {"work": None if work is None else work.header()}
    current = answers.under_way(asked)
    if current is None:
        return None, {}
    plot, work = current
    header = work.header()
    if work.state == "running":
        # A page cannot continue the projection, so it must not show it as running.
        header |= {"state": "cancelled"}
    return plot, plot.header() | {"work": header}


def _figure(corpus: Corpus, name: str, stacks: Sequence[Mapping[str, Any]]) -> str:
    """Draw all points of a stack as HTML with a picture, for browsers that run no scripts."""
    layers = next(entry for entry in stacks if entry["stack"] == name)["layers"]
    planes: _Planes = {}
    for layer in layers:
        # The picture needs only the high bytes, which are the first half of the data. The axes are
        # coordinate, head and point.
        codes = np.frombuffer(zlib.decompress(base64.b64decode(layer["points"])), np.uint8)
        together = codes[: len(codes) // 2].reshape(2, len(layer["heads"]), -1)
        for index, header in enumerate(layer["heads"]):
            plane = None if header["problem"] else together[:, index]
            planes[layer["layer"], header["head"]] = plane
    return _planes_figure(corpus, name, planes)


def layer_figure(answers: EmbeddingAnswers, state: Mapping[str, Any]) -> str:
    """Draw the points of all heads of the current layer. Return HTML with a picture."""
    name, layer = state["stack"], state["layer"]
    heads = range(answers.corpus.stack(name).num_heads(layer))
    plots = answers.plots(name, layer, heads, _placing(state))
    planes: _Planes = {}
    for head, plot in zip(heads, plots, strict=True):
        codes = coded(plot.coordinates)[2].T
        planes[layer, head] = None if plot.problem else (codes >> 8).astype(np.uint8)
    return _planes_figure(answers.corpus, name, planes)


def _planes_figure(corpus: Corpus, name: str, planes: _Planes) -> str:
    points = corpus.points(name)
    layers = sorted({layer for layer, _ in planes})
    heads = sorted({head for _, head in planes})

    def drawn(plane: NDArray[np.uint8] | None, side: int) -> Cells:
        if plane is None:
            return np.zeros((side, side), np.uint8)
        across, up = plane.astype(np.intp) * side // 256
        cell_indices = (side - 1 - up) * side + across
        first = points.num_queries
        counts_by_kind = [
            np.bincount(part, minlength=side**2) for part in np.split(cell_indices, [first])
        ]
        # Density 1 to 3, relative to the cell with the most points. Cells without points have 0.
        density = np.maximum(*counts_by_kind) / (
            max(1, *(int(counts.max()) for counts in counts_by_kind))
        )
        levels = np.ceil(3 * density).astype(np.uint8)
        shown = np.where((levels > 0) & (counts_by_kind[1] > counts_by_kind[0]), levels + 3, levels)
        return shown.reshape(side, side).astype(np.uint8)

    def cells(side: int) -> Cells:
        rows = [[drawn(planes.get((layer, head)), side) for head in heads] for layer in layers]
        return np.array(rows)

    layer_names = format_named("layer", layers)
    alt_text = (
        f"Queries (brown) and keys (blue) of {layer_names} from top to bottom and "
        f"{format_named('head', heads)} from left to right (stack {name}), "
        f"{len(points):,} points of each head on its two principal components."
    )
    return draw_grid(
        cells,
        _QUERY_KEY_COLORS,
        alt_text,
        lambda _: (
            "Cells with both have the colour of the more frequent, and darker cells have more "
            "points. Tokens, texts and other projections are in the interactive view."
        ),
        sides=(40, 32, 24, *SIDES),
    )


def _expected(corpus: Corpus, count: int) -> tuple[int, int]:
    """Return the sizes of the points and of the strongest keys before compression.

    The sizes are bytes of base64 text.
    """
    points = keys = 0
    for name, *_ in _heads(corpus):
        points += 5 * len(corpus.points(name))
        keys += 2 * count * corpus.points(name).num_queries
    return points * 4 // 3, keys * 4 // 3


def _embedded(stacks: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the sizes of all points, and of all strongest keys, in the finished page, in bytes."""
    layers = [layer for stack in stacks for layer in stack["layers"]]
    points = sum(len(entry["points"]) + len(entry["norms"]["data"]) for entry in layers)
    points += sum(len(stack["corpus"]) for stack in stacks)
    return points, sum(len(layer["keys"] or "") for layer in layers)


def _too_large(
    corpus: Corpus, data_sizes: tuple[int, int], limit: int, size: int, *, estimated: bool = False
) -> str:
    """Return the error message for a page that is too large, with the remedies.

    `size` is the size of the page in bytes. `data_sizes` contains the sizes of its points and of
    its strongest keys, which are proportional to the number of points. If `estimated` is True,
    `size` is an estimate, and the message says so.
    """
    num_points = max(len(corpus.points(name)) for name in corpus.stack_names)
    room = limit - (size - sum(data_sizes))
    fitting = _round_down(int(0.95 * num_points * room / sum(data_sizes)))
    remedies = []
    if data_sizes[1]:
        saved = format_megabytes(data_sizes[1])
        remedies.append(f"omit the lines with top_keys=0, which saves about {saved} MB")
    if 2 <= fitting < num_points:
        remedies.append(f"create the corpus with max_points={fitting:_}")
    if any(len(corpus.stack(name).layers) > 1 for name in corpus.stack_names):
        remedies.append("choose layers with include_layers=[...]")
    remedies.append(f"allow it with max_mb={format_megabytes(size)}")
    prefix = "about " if estimated else ""
    return (
        f"the page of {num_points:,} points in each of {len(_heads(corpus)):,} heads would have "
        f"{prefix}{format_megabytes(size)} MB (at most {format_megabytes(limit)}): "
        f"{', or '.join(remedies)}. Views in a notebook need no page"
    )


def _round_down(number: int) -> int:
    """Round down to two significant digits."""
    step = int(10 ** max(0, len(str(number)) - 2))
    return number // step * step
