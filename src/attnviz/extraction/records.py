"""From stacks of layers to records, one an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import Loaded
from attnviz.extraction.tokens.arrange import ImageLayout, arranged
from attnviz.extraction.tokens.labels import TokenNames
from attnviz.extraction.tokens.patches import pictures
from attnviz.record.record import AttentionRecord, AttentionStack

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
        self._batch = batch
        self._stacks = stacks
        model: Any = loaded.model
        processor = batch.processor if batch.processor is not None else loaded.processor
        self._places: dict[str, ImageLayout] = {}
        for name, layers in stacks.items():
            place = None
            if layers.stack in ("vision", "encoder"):
                place = arranged(model, layers, batch.arguments)
            if place is not None:
                self._places[name] = place
        block = max((place.block for place in self._places.values()), default=1)
        self._images, self._notes = pictures(batch.arguments, model.config, processor, block=block)
        each, rest = divmod(len(self._images), batch.size)
        if rest:
            # It cannot be told which are whose.
            self._images, each = [], 0
        self._each = each
        self._naming = TokenNames(
            model, batch, stacks, places=self._places, num_pictures=each, processor=processor
        )

    def records(self, notes: Sequence[str], title: str) -> list[AttentionRecord]:
        return [self._record(index, notes, title) for index in range(self._batch.size)]

    def _record(self, index: int, notes: Sequence[str], title: str) -> AttentionRecord:
        made = {}
        for name, (queries, keys) in self._naming.tokens(index).items():
            made[name] = AttentionStack(
                name=name,
                layers=self._stacks[name].attention(index),
                query_tokens=queries,
                key_tokens=None if keys is queries else keys,
            )
        used = any(stack.query_tokens.grids or stack.key_tokens.grids for stack in made.values())
        return AttentionRecord(
            made,
            model=title,
            notes=[*notes, *(self._notes if used else [])],
            images=self._pictures(index) if used else [],
        )

    def _pictures(self, index: int) -> list[NDArray[np.uint8]]:
        """An example's pictures, without what only fills up their page."""
        own = self._images[index * self._each : (index + 1) * self._each]
        sizes = next((place.sizes for place in self._places.values() if place.sizes), None)
        if sizes is None:
            return own
        return [image[:height, :width] for image, (height, width) in zip(own, sizes, strict=True)]
