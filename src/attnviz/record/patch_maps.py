"""Maps of weights over an image: the weights of some tokens on its patches, in rows and columns.

The patches are keys and the other tokens queries, as in a vision-language model. In a diffusion
model, whose patches attend to words, the patches are queries and the words keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnviz.record.images import PatchGrid
from attnviz.record.softmax import as_rows
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import existing_number

if TYPE_CHECKING:
    from attnviz.record.stack import AttentionStack

#: One token or several: positions or texts.
Chosen = int | str | Iterable[int | str] | None
# Method of a layer, such as `LayerAttention.block`: from heads, rows and columns to an array.
_Read = Callable[[Sequence[int], Any, slice], torch.Tensor]
# Maximum number of weights that are read at once, unless a single token has more.
_MAX_ENTRIES = 1 << 22


@dataclass(frozen=True)
class PatchMaps:
    """The patches of one image, and the tokens whose weights on them are maps.

    Attributes
    ----------
    grid : PatchGrid
        The patches.
    of_keys : bool
        Whether the patches are keys, and `tokens` queries. If False, it is the other way round.
    tokens : tuple of int
        Ascending positions of the tokens.
    """

    grid: PatchGrid
    of_keys: bool
    tokens: tuple[int, ...]

    @classmethod
    def select(
        cls, stack: AttentionStack, *, queries: Chosen, keys: Chosen, image: int | None
    ) -> PatchMaps:
        """Return the maps of `queries` over keys, or of `keys` over queries.

        The arguments are those of `AttentionStack.image_weights`. Without `queries` and `keys`, the
        maps are those of all queries, or those of all keys if only queries are patches.
        """
        if queries is not None and keys is not None:
            raise ValueError(
                "queries and keys cannot be combined. Pass queries= for maps over keys, or keys= "
                "for maps over queries."
            )
        of_keys = keys is None and (queries is not None or bool(stack.key_tokens.pictured))
        sides = stack.key_tokens, stack.query_tokens
        patches, others = sides if of_keys else sides[::-1]
        side = f"the {'keys' if of_keys else 'queries'} of stack {stack.name!r}"
        if not patches.pictured:
            why = "".join(f" {note}" for note in stack.missing_places)
            raise ValueError(f"image: {side} are not patches of an image in the record.{why}")
        grid = _grid_of(patches.pictured, image, side)
        name, chosen = ("queries", queries) if of_keys else ("keys", keys)
        return cls(grid, of_keys, _positions(name, chosen, others))

    def read(self, read: _Read, heads: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """Return the maps of `tokens`, (heads, tokens, rows, columns), on the CPU."""
        patches = np.array(self.grid.positions)
        rows, columns = np.array(tokens), patches
        if not self.of_keys:
            rows, columns = columns, rows
        first, last = int(columns.min()), int(columns.max())
        block = read(heads, as_rows(rows), slice(first, last + 1)).cpu()[..., columns - first]
        maps = block if self.of_keys else block.mT
        return maps.reshape(*maps.shape[:2], self.grid.rows, self.grid.columns)

    def parts(self, num_heads: int) -> Iterator[tuple[int, ...]]:
        """Yield parts of `tokens` whose maps are read at once."""
        step = max(1, _MAX_ENTRIES // (self.grid.rows * self.grid.columns * num_heads))
        for start in range(0, len(self.tokens), step):
            yield self.tokens[start : start + step]


def _grid_of(grids: Sequence[PatchGrid], image: int | None, owner: str) -> PatchGrid:
    """Return the grid of an image, by default of the only one. `owner` is for errors."""
    names = {grid.image: f" ({grid.name})" if grid.name else "" for grid in grids}
    if image is None and len(names) > 1:
        listed = ", ".join(f"{number}{name}" for number, name in names.items())
        raise ValueError(
            f"image: {owner} are patches of several images. Pass one of the numbers {listed}"
        )
    valid = [number for number in names if number is not None]
    number = existing_number(
        "image", valid[0] if image is None else image, valid, f"{owner} are patches of images"
    )
    of_image = [grid for grid in grids if grid.image == number]
    if len(of_image) > 1:
        raise ValueError(f"image={number}: {owner} are {len(of_image)} grids of patches of it")
    return of_image[0]


def _positions(name: str, chosen: Chosen, tokens: Tokens) -> tuple[int, ...]:
    if chosen is None:
        return tuple(range(len(tokens)))
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        chosen = [chosen]
    positions = sorted({tokens.position(token, name) for token in chosen})
    if not positions:
        raise ValueError(f"{name} is empty. Pass at least one token, or omit it for all.")
    return tuple(positions)
