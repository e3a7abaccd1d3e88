"""Convert attention weights that a model returns in another layout to (heads, queries, keys).

For example, a model that attends in windows of tokens may return a matrix for each window. A model
in which each query attends to a band of neighbouring keys may return only this band. The shape of a
tensor does not always determine its layout, so all possible layouts are tried. The conversions
follow the documentation of the models, and not the code of attnviz.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float32]
Places = NDArray[np.int64]


def layouts(own: torch.Tensor, heads: int, queries: int, keys: int) -> Iterator[Array]:
    """Yield arrays (heads, queries, keys), one for each layout that the tensor `own` can have."""
    values = own.detach().float()
    if values.dim() > 3 and values.shape[0] == 1:
        values = values[0]
    if tuple(values.shape) in ((1, queries, keys), (queries, keys)):
        # The tensor has the mean over heads. Repeat it for each head.
        values = values.reshape(1, queries, keys).expand(heads, queries, keys)
    if tuple(values.shape) == (heads, queries, keys):
        yield values.numpy()
        if queries == keys:
            yield from _row_by_row(values.numpy())
        return
    if values.dim() == 3 and tuple(values.shape[:2]) == (heads, queries) and queries == keys:
        yield from _band(values, keys)
    for windows in _as_windows(values, heads):
        if windows.shape[3] == 3 * windows.shape[2] and queries == keys:
            yield from _neighbouring_blocks(windows, queries)
        yield from _windows(windows, queries, keys)


def _as_windows(values: torch.Tensor, heads: int) -> Iterator[torch.Tensor]:
    """Yield tensors (windows, heads, queries, keys), one for each axis that can have the heads.

    In a tensor with four axes, the heads can be axis 0 or axis 1. In a tensor with three axes, axis
    0 has all heads of the first window, then all heads of the second window, and so on.
    """
    if values.dim() == 4 and values.shape[1] == heads:
        yield values
    if values.dim() == 4 and values.shape[0] == heads:
        yield values.transpose(0, 1)
    if values.dim() == 3 and values.shape[0] % heads == 0:
        yield values.unflatten(0, (-1, heads))


def _row_by_row(values: Array) -> Iterator[Array]:
    """Reorder the patches of an image from blocks of 2 x 2 patches to rows of the image.

    Some models, such as Qwen2-VL, order the patches by blocks. The height and the width of the
    image are not known. Yield one array for each even height and even width, in patches, whose
    product is the number of tokens.
    """
    tokens = np.arange(values.shape[1])
    for rows, columns in _factors(len(tokens)):
        if rows % 2 or columns % 2:
            continue
        blocks = tokens.reshape(rows // 2, columns // 2, 2, 2)
        order = blocks.transpose(0, 2, 1, 3).reshape(-1)
        yield values[:, order][:, :, order]


def _band(values: torch.Tensor, keys: int) -> Iterator[Array]:
    """Convert a band of keys around each query (heads, queries, width), as in Longformer.

    Yield nothing if the width is even.
    """
    if values.shape[2] % 2 and values.shape[1] == keys:
        yield with_global_tokens(values, torch.zeros(len(values), keys, 0), []).numpy()


def with_global_tokens(
    band: torch.Tensor, rows: torch.Tensor, tokens: Sequence[int]
) -> torch.Tensor:
    """Convert the weights of one example of Longformer or LED to (heads, queries, keys).

    `tokens` are the positions of the global tokens. `band` is (heads, queries, columns). Its first
    columns have the weights on the global tokens. Column c of the other ``width`` columns has the
    weight of query i on key i - width // 2 + c. `rows` is (heads, keys, columns): the weights of
    each global token. Both may have columns for more global tokens, because other examples of the
    batch have more.
    """
    heads, queries = band.shape[:2]
    width = band.shape[2] - rows.shape[2]
    full = torch.zeros(heads, queries, queries)
    for row in range(queries):
        if row in tokens:
            full[:, row] = rows[:, :queries, tokens.index(row)]
            continue
        for column, token in enumerate(tokens):
            full[:, row, token] += band[:, row, column]
        for column in range(width):
            key = row - width // 2 + column
            if 0 <= key < queries:
                full[:, row, key] += band[:, row, rows.shape[2] + column]
    return full


def from_chunks(
    values: torch.Tensor, order: torch.Tensor, before: int, shares: torch.Tensor
) -> torch.Tensor:
    """Convert the weights of one example of Reformer to (heads, queries, keys).

    `order` is (heads, rounds * tokens): the tokens of each round, sorted. They are divided into
    chunks. `values` is (heads, chunks, size, columns): the weights of the tokens of a chunk on
    those of its neighbours, beginning with `before` chunks before it. The first and the last chunk
    are neighbours. `shares` is (heads, rounds, tokens): the share of each round in each row.
    """
    heads, chunks, size, columns = values.shape
    tokens = shares.shape[2]
    full = torch.zeros(heads, tokens, tokens)
    for head in range(heads):
        sorted_tokens = order[head].tolist()
        for chunk in range(chunks):
            for row in range(size):
                position = chunk * size + row
                query = sorted_tokens[position]
                share = shares[head, position // tokens, query]
                for column in range(columns):
                    other = (chunk - before + column // size) % chunks
                    key = sorted_tokens[other * size + column % size]
                    full[head, query, key] += share * values[head, chunk, row, column]
    return full


def _neighbouring_blocks(values: torch.Tensor, tokens: int) -> Iterator[Array]:
    """Convert weights of blocks of `size` queries (blocks, heads, size, 3 * size), as in LongT5.

    The queries of block b attend to the keys of blocks b - 1, b and b + 1. The last block may be
    padded. Yield nothing if the number of blocks does not fit the number of tokens.
    """
    blocks, heads, size, width = values.shape
    if not tokens <= blocks * size < tokens + size:
        return
    full = np.zeros((heads, tokens, tokens), np.float32)
    for block in range(blocks):
        for offset in range(size):
            for column in range(width):
                row, key = block * size + offset, (block - 1) * size + column
                if row < tokens and 0 <= key < tokens:
                    full[:, row, key] = values[block, :, offset, column].numpy()
    yield full


def _windows(values: torch.Tensor, queries: int, keys: int) -> Iterator[Array]:
    """Convert weights of windows (windows, heads, rows, columns). Each token is in one window.

    `rows` and `columns` are the numbers of queries and keys in one window. Yield one array for each
    way to divide the tokens into windows. Yield nothing if the windows together do not have
    `queries` queries and `keys` keys.
    """
    count, heads, rows, columns = values.shape
    if count * rows != queries or count * columns != keys:
        return
    for row_places, column_places in _partitions(count, rows, columns):
        full = np.zeros((heads, queries, keys), np.float32)
        for window in range(count):
            block = np.ix_(range(heads), row_places[window], column_places[window])
            full[block] = values[window].numpy()
        yield full


def _partitions(count: int, rows: int, columns: int) -> Iterator[tuple[Places, Places]]:
    """Yield each way to divide the queries and the keys into windows.

    The first array has the positions of the queries in each window, the second those of the keys.
    Both arrays are (windows, tokens). `count` is the number of windows. `rows` and `columns` are
    the numbers of queries and keys in one window.
    """
    queries, keys = np.arange(count * rows), np.arange(count * columns)
    # A window can have neighbouring tokens, or every `count`-th token (as in Hiera, or in videos).
    yield queries.reshape(count, rows), keys.reshape(count, columns)
    yield queries.reshape(rows, count).T, keys.reshape(columns, count).T
    if count == 2:
        # The two windows can be two images. The queries of each image attend to the keys of the
        # other image.
        yield queries.reshape(2, rows), keys.reshape(2, columns)[::-1]
    if rows != columns:
        return
    for window_height, window_width in _factors(rows):
        for down, across in _factors(count):
            height, width = down * window_height, across * window_width
            # Windows can be rectangles of an image. In every second layer of Swin, they are shifted
            # cyclically by half their size.
            for shift in {(0, 0), (window_height // 2, window_width // 2)}:
                grid = np.roll(queries.reshape(height, width), (-shift[0], -shift[1]), axis=(0, 1))
                partition = (
                    grid.reshape(down, window_height, across, window_width)
                    .transpose(0, 2, 1, 3)
                    .reshape(count, rows)
                )
                yield partition, partition


def _factors(number: int) -> Iterator[tuple[int, int]]:
    """Yield all pairs of factors of a number. Pairs with nearly equal factors come first."""
    for first in sorted(
        range(1, number + 1), key=lambda n: abs(math.log(n) - math.log(number) / 2)
    ):
        if number % first == 0:
            yield first, number // first
