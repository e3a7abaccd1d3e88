"""From stacks of layers to records, one an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.extraction.arrange import Arranged, arranged
from attnviz.extraction.batch import Batch
from attnviz.extraction.frames import frame_tokens
from attnviz.extraction.image_runs import with_image_runs
from attnviz.extraction.layers import StackLayers
from attnviz.extraction.models import Loaded
from attnviz.extraction.patches import grid_tokens, one_after_the_other, patch_tokens
from attnviz.extraction.pixels import pictures
from attnviz.extraction.target import joined_tokens
from attnviz.record import AttentionRecord, AttentionStack
from attnviz.tokens import Tokens

__all__ = ["make_records"]


def make_records(
    loaded: Loaded,
    batch: Batch,
    stacks: dict[str, StackLayers],
    notes: Sequence[str],
    *,
    title: str,
) -> list[AttentionRecord]:
    """Make a record of each example of a forward.

    Parameters
    ----------
    loaded : Loaded
        The model that ran.
    batch : Batch
        What it was given.
    stacks : dict of str to StackLayers
        What was captured; patches are put into the order of their image.
    notes : sequence of str
        What a reader must know.
    title : str
        The model's name.

    Returns
    -------
    list of AttentionRecord
    """
    return _Maker(loaded, batch, stacks).records(notes, title)


class _Maker:
    def __init__(self, loaded: Loaded, batch: Batch, stacks: dict[str, StackLayers]) -> None:
        self._model: Any = loaded.model
        self._batch = batch
        self._stacks = stacks
        processor = batch.processor if batch.processor is not None else loaded.processor
        self._processor = processor
        self._images, self._notes = pictures(batch.arguments, self._model.config, processor)
        self._arranged: dict[str, Arranged] = {}
        for name, layers in stacks.items():
            place = None
            if layers.stack == "vision":
                place = arranged(self._model, layers, batch.arguments)
            if place is not None:
                self._arranged[name] = place

    def records(self, notes: Sequence[str], title: str) -> list[AttentionRecord]:
        return [self._record(index, notes, title) for index in range(self._batch.size)]

    def _record(self, index: int, notes: Sequence[str], title: str) -> AttentionRecord:
        pictured = self._pictured(index)
        made: dict[str, AttentionStack] = {}
        for name, layers in self._stacks.items():
            num_queries, num_keys = layers.shape(index)
            decoder = layers.stack in ("decoder", "cross") and "decoder" in self._batch.sides
            queries = self._tokens("decoder" if decoder else "input", index, num_queries, name)
            keys = queries
            if layers.stack == "cross" or num_keys != num_queries:
                side = "decoder" if layers.stack == "decoder" else "input"
                keys = self._tokens(side, index, num_keys, name)
            made[name] = AttentionStack(
                name=name,
                layers=layers.attention(index),
                query_tokens=queries,
                key_tokens=None if keys is queries else keys,
            )
        used = any(stack.query_tokens.grids or stack.key_tokens.grids for stack in made.values())
        return AttentionRecord(
            made,
            model=title,
            notes=[*notes, *(self._notes if used else [])],
            images=[self._images[each] for each in pictured] if used else [],
        )

    def _pictured(self, index: int) -> list[int]:
        """Which of the pictures are this example's."""
        each, rest = divmod(len(self._images), self._batch.size)
        return [] if rest else list(range(index * each, (index + 1) * each))

    def _tokens(self, side: str, index: int, count: int, name: str) -> Tokens:
        layers = self._stacks[name]
        found = None
        if layers.stack != "vision":
            found = self._read(side, index, count)
        if found is None and side == "input":
            found = self._seen(layers, index, count, name)
        if found is None:
            found = Tokens.of([f"[{place}]" for place in range(count)], words=range(count))
        return found

    def _read(self, side: str, index: int, count: int) -> Tokens | None:
        """Tokens of a text, where there are just so many."""
        tokens = self._batch.tokens.get(side, [None] * self._batch.size)[index]
        read = self._batch.tokens.get("input", [None] * self._batch.size)[index]
        if tokens is None:
            return None
        if side == "decoder" and read is not None and len(tokens) + len(read) == count:
            # The keys of a decoder that reads its own tokens and the input's in one attention.
            return joined_tokens(tokens, read)
        if len(tokens) != count:
            return None
        pictured = len(self._pictured(index))
        return with_image_runs(tokens, self._model.config, self._batch.arguments, pictured)

    def _seen(self, layers: StackLayers, index: int, count: int, name: str) -> Tokens | None:
        """Tokens of pictures or of a sound."""
        num_pictures = len(self._pictured(index))
        own = layers.shape(index)[0] == count
        if own and name in self._arranged:
            place = self._arranged[name]
            known = len(place.grids) == num_pictures
            images = range(num_pictures) if known else [None] * len(place.grids)
            return grid_tokens(place.grids, after=place.padding, images=images)
        windows = set(layers.windows)
        if own and windows != {()}:
            # Layers that keep tokens in different orders have no common names for them.
            return self._windows(windows.pop(), num_pictures) if len(windows) == 1 else None
        pixels = self._batch.arguments.get("pixel_values")
        if pixels is not None and pixels.dim() >= 4:
            image = 0 if num_pictures == 1 else None
            return patch_tokens(self._model.config, tuple(pixels.shape[-2:]), count, image=image)
        return frame_tokens(self._batch.arguments, self._model.config, self._processor, count)

    def _windows(self, windows: Sequence[int], num_pictures: int) -> Tokens:
        """Windows that are whole pictures, or of which only the order is known."""
        pixels = self._batch.arguments.get("pixel_values")
        if len(windows) == num_pictures and pixels is not None and pixels.dim() >= 4:
            size = tuple(pixels.shape[-2:])
            parts = [
                patch_tokens(self._model.config, size, count, image=number)
                for number, count in enumerate(windows)
            ]
            if all(part.grids for part in parts):
                return one_after_the_other(parts)
        text = [
            f"w{number + 1}:{place}"
            for number, count in enumerate(windows)
            for place in range(count)
        ]
        return Tokens.of(text, words=range(len(text)))
