"""Exported HTML page of an embedding view.

The page contains replies of the view's server, which are recorded in advance (see
`attnviz.pages.recorded`). A point is a query or a key of one token. For each head the page contains
the first two principal components of each point as 16-bit codes (see
`attnviz.embedding.server.plots.coded`), the norm of each point, and the trust figures
(see `attnviz.embedding.trust`). With `top_keys` the page also contains the strongest keys of each
query. If the view shows another projection, such as t-SNE, the page contains its plots, too. Their
replies come first, because a request gets the first reply with its arguments, and those of the
principal components have no method. ``js/src/views/embedding/client/requests.ts`` reads the
page. The tests of both languages read ``tests/fixtures/embedding.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.description import describe_corpus, describe_points
from attnviz.embedding.server.plots import TOP_CODE, EmbeddingAnswers, PlotOptions, coded
from attnviz.embedding.server.weights import top_keys
from attnviz.pages.colors import LIGHT, rgb_of
from attnviz.pages.html import check_size_without_data, document
from attnviz.pages.limits import check_top_keys, format_megabytes
from attnviz.pages.picture import SIDES, Cells, draw_grid
from attnviz.pages.recorded import recorded, recorded_json
from attnviz.utils.arguments import format_named
from attnviz.utils.progress import part_of, report, show_progress
from attnviz.utils.threads import torch_threads

#: Default maximum size of a page, in bytes. Larger pages open slowly.
MAX_BYTES = 40_000_000

# Reason why a page without `top_keys` draws no lines, for its reader.
_NO_KEYS = (
    "This page does not contain the strongest keys of its queries. Save it with top_keys=5 to add "
    "them."
)

# Colours of the cells of a picture: the background, three densities of queries, and three densities
# of keys.
_WHITE = rgb_of(LIGHT["background"])
_QUERY_KEY_COLORS = np.array(
    [
        _WHITE,
        *(
            _WHITE + share * (rgb_of(color) - _WHITE)
            for color in LIGHT["heads"][:2]
            for share in (0.4, 0.7, 1.0)
        ),
    ]
)


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
        Number of strongest keys to store in the page for each query.
    max_bytes : int, optional
        Maximum size of the page in bytes. None sets no limit.
    wait : bool, default True
        Whether to wait until the t-SNE or UMAP projection of the enlarged head is finished. If
        False, the page contains the newest frame, which has the points after some iterations. If
        it has no frame, the page shows the principal components.
    """
    top_keys = check_top_keys(top_keys)
    corpus = answers.corpus
    size = check_size_without_data(corpus.model, "embedding", state, max_bytes)
    placing = _placing(state)
    # Projections may fail. They come first, so that a failure is reported before the rest of the
    # page is computed, which takes seconds.
    if wait:
        finish_projection(answers, state)
    replies = _projection(answers, state)
    if not replies and not wait:
        # The projection has no frame yet, so the page shows the principal components.
        state = {**state, "method": "pca", "dimensions": 2}
    for name in corpus.stack_names:
        replies.append(recorded_json("points", {"stack": name}, describe_points(corpus, name)))
        layers = corpus.stack(name).layers
        for done, layer in enumerate(layers):
            with part_of(f"layers of {name}", done, len(layers)):
                of_layer = list(_layer_replies(answers, name, layer, placing, top_keys))
            replies += of_layer
            size += sum(len(reply.get("data", "")) for reply in of_layer)
            if max_bytes is not None and size > max_bytes:
                raise ValueError(_too_large(corpus, max_bytes, size, "at least "))
    if not top_keys:
        replies.append(recorded("lines", {}, {"problem": _NO_KEYS}))
    data = {"description": describe_corpus(corpus), "replies": replies}
    layers = corpus.stack(state["stack"]).layers
    figure = embedding_figure(answers, state, layers)
    page = document(corpus.model, "embedding", state, data, figure=figure)
    size = len(page.encode())
    if max_bytes is not None and size > max_bytes:
        raise ValueError(_too_large(corpus, max_bytes, size))
    return page


def _layer_replies(
    answers: EmbeddingAnswers, name: str, layer: int, placing: Placing, count: int
) -> Iterator[dict[str, Any]]:
    """Yield the replies for the heads of a layer, with `count` strongest keys per query."""
    corpus = answers.corpus
    heads = range(corpus.stack(name).num_heads(layer))
    at: dict[str, Any] = {"stack": name, "layer": layer}
    options = PlotOptions(name, layer, placing)
    # Number of steps of the progress bar: plots, trust figures and strongest keys.
    parts = 3.0
    with part_of("plots", 0, parts):
        plots = answers.plots(options)
    headers, codes = zip(*(plot.reply() for plot in plots), strict=True)
    yield recorded("plot", at, headers, np.stack(codes, axis=1), planes=4)
    with part_of("trust", 1, parts):
        trust = answers.trust(options)
    yield recorded("trust", at, {"heads": trust})
    with torch_threads(1):
        headers, codes = zip(*(answers.norms(name, layer, head) for head in heads), strict=True)
        yield recorded("norms", at, headers, np.stack(codes).view(np.uint8))
        if count:
            keys = []
            with part_of("keys", 2, parts):
                for head in heads:
                    report("strongest keys", head, len(heads), "head")
                    keys.append(_coded_keys(corpus, name, layer, head, count))
            yield recorded("lines", at, [{}] * len(heads), np.stack(keys, axis=1), planes=4)
    report("layers", parts, parts)


def _coded_keys(corpus: Corpus, name: str, layer: int, head: int, count: int) -> NDArray[np.uint8]:
    """Return the `count` strongest keys of each query, (4, count, queries).

    The first axis has the high bytes of the weights (as shares of `TOP_CODE`) and of the indices of
    the keys (see `top_keys`), and then the low bytes of both.
    """
    weights, keys = top_keys(corpus, name, layer, head, count)
    codes = np.stack([np.rint(TOP_CODE * np.clip(weights, 0, 1)).astype(np.int64), keys])
    return np.concatenate([codes >> 8, codes & 255]).astype(np.uint8)


def finish_projection(answers: EmbeddingAnswers, state: Mapping[str, Any]) -> None:
    """Wait for the final result of the t-SNE or UMAP projection of the enlarged head."""
    if state["method"] != "pca" and state["enlarged"]:
        answers.plot(_plot_of(state, *_enlarged(state)), wait=True, start=False)


def _placing(state: Mapping[str, Any]) -> Placing:
    return Placing(state["scaling"], state["translate"], state["lift"])


def _enlarged(state: Mapping[str, Any]) -> tuple[int, int]:
    """Return the layer and the number of the enlarged head."""
    return state["layer"], state["heads"][0] if state["heads"] else 0


def _plot_of(state: Mapping[str, Any], layer: int, head: int) -> PlotOptions:
    """Return the plot of a head of the view's stack with the options of the view."""
    names = ("stack", "method", "dimensions", "perplexity", "neighbors", "seed")
    options = {name: state[name] for name in names}
    return PlotOptions(layer=layer, head=head, placing=_placing(state), **options)


def _projection(answers: EmbeddingAnswers, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return replies with the plot of the enlarged head, and its trust figures.

    There are none for two principal components, because every page contains these plots, and for a
    t-SNE or UMAP that has no frame (intermediate result).
    """
    layer, head = _enlarged(state)
    options = _plot_of(state, layer, head)
    at = {"stack": options.stack, "layer": layer, "head": head}
    at |= {"method": options.method, "dimensions": options.dimensions}
    if (options.method, options.dimensions) == ("pca", 2):
        return []
    plot = answers.plot(options, start=False)
    if options.method != "pca" and not plot.is_projected:
        return []
    header, codes = plot.reply()
    if plot.work is not None and plot.work.state == "running":
        # A page cannot continue the projection, so it must not show it as running.
        header["work"]["state"] = "cancelled"
    trust = {"heads": answers.trust(options)}
    return [recorded("plot", at, header, codes), recorded("trust", at, trust)]


def embedding_figure(
    answers: EmbeddingAnswers,
    state: Mapping[str, Any],
    layers: Sequence[int],
    heads: Sequence[int] | None = None,
) -> str:
    """Draw the points of heads of some layers, or of all heads. Return HTML with the picture.

    The picture is shown where scripts do not run.
    """
    corpus, name = answers.corpus, state["stack"]
    points = corpus.points(name)
    placing = _placing(state)
    plots = [answers.plots(PlotOptions(name, layer, placing), heads) for layer in layers]
    most = max(map(len, plots))

    def cells(side: int) -> Cells:
        """Return a level for each cell of each head: 1 to 3 for queries, 4 to 6 for keys, or 0."""
        levels = np.zeros((len(plots), most, side**2), np.uint8)
        for row, of_layer in enumerate(plots):
            for column, plot in enumerate(of_layer):
                across, up = coded(plot.coordinates)[2].T.astype(np.intp) * side // (TOP_CODE + 1)
                indices = np.split((side - 1 - up) * side + across, [points.num_queries])
                counts = np.stack([np.bincount(part, minlength=side**2) for part in indices])
                density = counts.max(axis=0) / counts.max()
                if not plot.problem:
                    kinds = 3 * counts.argmax(axis=0) * (density > 0)
                    levels[row, column] = np.ceil(3 * density) + kinds
        return levels.reshape(len(plots), most, side, side)

    alt_text = (
        f"Queries (brown) and keys (blue) of {format_named('layer', layers)} from top to bottom "
        f"and {format_named('head', heads or range(most))} from left to right (stack {name}), "
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


def _num_heads(corpus: Corpus, name: str) -> int:
    return sum(map(corpus.stack(name).num_heads, corpus.stack(name).layers))


def _too_large(corpus: Corpus, limit: int, size: int, prefix: str = "") -> str:
    """Return the error message for a page of `size` bytes, which is too large."""
    num_points = max(len(corpus.points(name)) for name in corpus.stack_names)
    num_heads = sum(_num_heads(corpus, name) for name in corpus.stack_names)
    return (
        f"the page of {num_points:,} points in each of {num_heads:,} heads would have {prefix}"
        f"{format_megabytes(size)} MB (at most {format_megabytes(limit)}). Create the corpus with "
        "a smaller max_points, choose layers with include_layers=[...], reduce top_keys, or pass a "
        "larger max_mb. Views in a notebook need no page."
    )
