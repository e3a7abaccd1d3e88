"""From stacks of layers to records, one an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import Loaded
from attnviz.extraction.tokens.arrange import ImageLayout, arrange_patches
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
    """Make a record of each example; patches are put into the order of their image."""
    return _RecordMaker(loaded, batch, stacks).records(notes, title)


class _RecordMaker:
    def __init__(self, loaded: Loaded, batch: Batch, stacks: dict[str, StackLayers]) -> None:
        self._batch = batch
        self._stacks = stacks
        model: Any = loaded.model
        processor = batch.processor if batch.processor is not None else loaded.processor
        self._layouts: dict[str, ImageLayout] = {}
        for name, layers in stacks.items():
            layout = None
            if layers.stack in ("vision", "encoder"):
                layout = arrange_patches(model, layers, batch.arguments)
            if layout is not None:
                self._layouts[name] = layout
        block = max((layout.block for layout in self._layouts.values()), default=1)
        self._images, self._notes = pictures(batch.arguments, model.config, processor, block=block)
        each, rest = divmod(len(self._images), batch.size)
        if rest:
            # It is unclear which picture belongs to which example.
            self._images, each = [], 0
        self._each = each
        self._token_names = TokenNames(
            model, batch, stacks, layouts=self._layouts, num_pictures=each, processor=processor
        )

    def records(self, notes: Sequence[str], title: str) -> list[AttentionRecord]:
        return [self._record(index, notes, title) for index in range(self._batch.size)]

    def _record(self, index: int, notes: Sequence[str], title: str) -> AttentionRecord:
        made = {}
        for name, (queries, keys) in self._token_names.tokens(index).items():
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
        sizes = next((layout.sizes for layout in self._layouts.values() if layout.sizes), None)
        if sizes is None:
            return own
        return [image[:height, :width] for image, (height, width) in zip(own, sizes, strict=True)]
