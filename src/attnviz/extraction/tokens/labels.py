"""Class that finds the names of the queries and keys in each stack of attention layers.

A stack has the layers with the same task, such as an encoder. Its tokens are its queries and keys:
tokens of a text, patches of images or frames of a sound. Other tokens are named by their index.

A picture is the RGB array of an image, or of a frame of a film, that the record shows. A picture
belongs to a grid of patches among the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.adapters import VirtualTokens
from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.families import (
    CHOOSES_QUERIES,
    IMAGE_TOKEN_IDS,
    IMAGES,
    NOT_PATCHES,
    PATCHES_ASK,
    SERIES,
    SOUND_TOKEN_IDS,
    SOUNDS,
    families_in,
    family_of,
    frames_per_patch,
)
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.tokens.arrange import arrange_patches
from attnviz.extraction.tokens.frames import frame_tokens, sound_of, time_notes, with_sound_runs
from attnviz.extraction.tokens.image_boxes import ImageBox, image_box
from attnviz.extraction.tokens.packing import PackedImage, with_packed_images
from attnviz.extraction.tokens.patches import (
    extra_tokens,
    given_grid,
    grid_of,
    grid_tokens,
    image_sizes_of,
    numbered,
    patch_tokens,
    pictures,
    place_tokens,
    runs_of,
    with_image_runs,
    with_times,
)
from attnviz.extraction.tokens.series import series_tokens
from attnviz.record.notes import Note
from attnviz.record.tokens import Tokens, joined_tokens, quote
from attnviz.record.words import find_words

# Kinds of stacks whose queries may be patches of images or frames of a sound.
_SEEING = ("vision", "encoder", "audio", "self", "pooling")
# Kinds of stacks whose queries may be tokens of a text.
_READING = ("self", "linear", "indexer", "encoder", "decoder", "cross")

# Beginnings of the names of arguments with images, sounds or time series, by the kind of media, and
# the places that tokens of this kind may have.
_MEDIA = {"image": IMAGES, "sound": SOUNDS, "time series": SERIES}
_PLACES = {"image": "rows and columns", "sound": "times", "time series": "steps"}
_UNKNOWN = "attnviz does not know which part each of them stands for"


class RecordTokens:
    """Tokens and pictures for the records of a forward.

    `batch` has the inputs of the forward, `stacks` the captured layers, and `packed` the images
    whose tokens the model packed. `convolved` is the result of `watch_convolutions`. Layers of an
    image encoder are changed in place: their patches
    are sorted row by row if their order is known.

    Attributes
    ----------
    notes : list of str
        Notes for the reader on how the pictures were rebuilt.
    """

    def __init__(
        self,
        loaded: Loaded,
        batch: Batch,
        stacks: Mapping[str, StackLayers],
        packed: Sequence[PackedImage] = (),
        convolved: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._model: Any = loaded.model
        self._convolved = convolved
        self._processor = loaded.processor if batch.processor is None else batch.processor
        self._batch = batch
        self._stacks = stacks
        self._virtual = loaded.virtual
        self._sound = sound_of(batch.arguments, self._model.config, self._processor)
        layouts = {
            name: arrange_patches(self._model, layers, batch.arguments, convolved)
            for name, layers in stacks.items()
            if layers.stack in ("vision", "encoder") and not _are_channels(layers)
        }
        self._layouts = {name: layout for name, layout in layouts.items() if layout is not None}
        self._image_sizes = image_sizes_of(batch.arguments) if batch.size == 1 else None
        # Images whose tiles the model joined.
        self._packed = list(packed) if batch.size == 1 else []
        # Pixel values of the images or, without images, of the film.
        given = (batch.arguments.get(name) for name in ("pixel_values", "pixel_values_videos"))
        self._pixels: Any = next((one for one in given if isinstance(one, torch.Tensor)), None)
        if self._packed:
            self._image_sizes = None
        self._pictures, self.notes = self._rebuilt(batch.arguments)
        # Number of pictures of each example. All examples have the same number.
        self._num_pictures, remainder = divmod(len(self._pictures), batch.size)
        if remainder:
            # Show no pictures, because it is unclear which pictures belong to which example.
            self._num_pictures = 0

    def _rebuilt(self, arguments: Mapping[str, Any]) -> tuple[list[NDArray[np.uint8]], list[str]]:
        """Return the pictures in a model's arguments, and notes on them."""
        images, notes = pictures(
            arguments,
            self._model.config,
            self._processor,
            options=self._batch.processor_options,
            block=max((layout.block for layout in self._layouts.values()), default=1),
        )
        return (list(self._tiles(images)) if self._packed else images), notes

    def _tiles(self, pictures: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        """Yield the pictures of packed images without those that only fill up a batch."""
        given = len(pictures) // len(self._packed)
        start = 0
        for image in self._packed:
            yield from pictures[start : start + image.num_tiles]
            is_padded = self._pixels.dim() == 5
            start += given if is_padded else image.num_tiles

    def _joined(self, images: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        start = 0
        for image in self._packed:
            if image.num_tiles > 1:
                yield image.joined_picture(images[start : start + image.num_tiles])
            start += image.num_tiles

    def pictures(self, index: int) -> list[NDArray[np.uint8]]:
        """Return the pictures of an example, uint8 (height, width, 3).

        Padding is removed if its size is known.
        """
        return self._shown(
            self._pictures[index * self._num_pictures : (index + 1) * self._num_pictures]
        )

    def _shown(self, images: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """Return pictures without padding, and the joined tiles of packed images."""
        if self._image_sizes is None:
            return images + list(self._joined(images) if images else ())
        sizes = zip(images, self._image_sizes, strict=False)
        return [image[:height, :width] for image, (height, width) in sizes]

    def _in_images(self, tokens: Tokens) -> Tokens:
        """Return tokens whose grids have boxes in the images as the user passed them, if known."""
        grids = tuple(
            replace(grid, size=box[0], box=box[1])
            if grid.image is not None and (box := self._boxes.get(grid.image))
            else grid
            for grid in tokens.grids
        )
        return replace(tokens, grids=grids) if grids else tokens

    @cached_property
    def _boxes(self) -> dict[int, ImageBox]:
        """Box of each picture in the image of the user, if it is known."""
        if self._batch.place_images is None or not self._num_pictures or self._batch.size > 1:
            return {}
        try:
            sizes, arguments = self._batch.place_images()
        except Exception:  # noqa: BLE001 - a processor of the user may refuse other images
            return {}
        placed = self._shown(self._rebuilt(arguments)[0])
        pairs = enumerate(zip(self.pictures(0), placed, strict=False))
        boxes = {number: image_box(sizes, *pair) for number, pair in pairs}
        return {number: box for number, box in boxes.items() if box is not None}

    def tokens(self, index: int) -> dict[str, tuple[Tokens, Tokens]]:
        """Return a pair (tokens of the queries, tokens of the keys) of each stack, for one example.

        If the keys of a stack are the same tokens as its queries, the pair has one object twice.
        """
        queries: dict[str, Tokens] = {}
        # Name the tokens of stacks over a text last, because image tokens in the text get the rows
        # and columns of the patches in other stacks.
        # Queries and keys of other stacks may be the queries of encoders.
        for name in sorted(
            self._stacks,
            key=lambda stack: (
                self._reads_text(stack, index),
                self._stacks[stack].stack not in ("vision", "audio", "encoder"),
            ),
        ):
            queries[name] = self._side(name, index, queries, are_keys=False)
        stack_tokens = {}
        for name, layers in self._stacks.items():
            num_queries, num_keys = layers.shape(index)
            keys = queries[name]
            # Statistics of many texts need the same form for short texts, which have no summaries.
            has_summaries = layers.runs[0].summaries is not None
            if layers.stack == "cross" or num_keys != num_queries or has_summaries:
                keys = self._side(name, index, queries, are_keys=True)
            stack_tokens[name] = (queries[name], keys)
        # Stacks with the same tokens share one object.
        placed = {
            id(side): self._in_images(side) for pair in stack_tokens.values() for side in pair
        }
        return {
            name: (placed[id(queries)], placed[id(keys)])
            for name, (queries, keys) in stack_tokens.items()
        }

    def place_notes(self, stack_tokens: Mapping[str, tuple[Tokens, Tokens]]) -> list[str]:
        """Return notes that say why tokens of media have no place, and what times assume.

        `stack_tokens` is the result of `tokens`.
        """
        # For each kind of media, the names of the stacks by the reason.
        missing: dict[str, dict[str, list[str]]] = {}
        names = (text for pair in stack_tokens.values() for side in pair for text in side.text)
        for name, (queries, keys) in stack_tokens.items():
            for tokens in {id(queries): queries, id(keys): keys}.values():
                media, reason = self._why_no_place(name, tokens, are_keys=tokens is not queries)
                stacks = missing.setdefault(media, {}).setdefault(reason, [])
                if reason and name not in stacks:
                    stacks.append(name)
        return [
            Note(
                f"The tokens of the {media} have no {_PLACES[media]}: "
                + "; ".join(f"{reason} ({_listed(stacks)})" for reason, stacks in reasons.items())
                + ".",
                "no places",
            )
            for media, reasons in missing.items()
            if media
        ] + time_notes(names, self._sound, self._processor)

    def _why_no_place(self, name: str, tokens: Tokens, *, are_keys: bool) -> tuple[str, str]:
        """Return the kind of media of which some of `tokens` have no place, and the reason.

        `tokens` are the queries or the keys of a stack. Both strings are empty if no token lacks a
        place.
        """
        layers, config, arguments = self._stacks[name], self._model.config, self._batch.arguments
        for media, ids in (("image", IMAGE_TOKEN_IDS), ("sound", SOUND_TOKEN_IDS)):
            # Only tokens without a place have such a name.
            name_of_first = f"{media} 1"
            runs = runs_of(tokens, config, ids) if name_of_first in tokens.text else []
            if runs and tokens.text[runs[0][0]] == name_of_first:
                resampled = any(_is_resampler(other, 0) for other in self._stacks.values())
                many = {"image": "the whole image", "sound": "several frames"}[media]
                reason = f"each of them stands for {many}" if resampled else _UNKNOWN
                return media, reason
        given = [
            media
            for media, arguments_of_media in _MEDIA.items()
            if any(argument.startswith(arguments_of_media) for argument in arguments)
        ]
        if tokens.text[:1] != ("[0]",) or not given:
            return "", ""
        # Queries that the model learned do not stand for a part of the media.
        num_queries, num_keys = layers.shape()
        learned = (
            layers.stack in ("connector", "decoder")
            or (layers.stack == "pooling" and num_queries != num_keys)
            or (any(map(NOT_PATCHES.search, layers.names)) and not _are_channels(layers))
        )
        chooses = self._chooses_queries(layers)
        if learned and not are_keys and not chooses:
            return "", ""
        media = "sound" if layers.stack == "audio" else given[0]
        if media == "image" and any(family.custom_patch_order for family in families_in(config)):
            return media, "only the code of the model defines the order of patches"
        reason = _UNKNOWN
        if chooses:
            reason = "each head attends from some of them, in its own order"
        elif _are_channels(layers) or (media == "time series" and len(set(layers.windows)) > 1):
            reason = "layers attend from channels to channels, and not from patches to patches"
        elif any(layers.windows):
            reason = "layers divide it into windows of an unknown form"
        return media, reason

    def _reads_text(self, name: str, index: int) -> bool:
        """Whether the queries of a stack seem to be the tokens of a text."""
        layers = self._stacks[name]
        tokens = self._text(self._sequence_of(layers.stack, are_keys=False), index)
        return (
            layers.stack in _READING
            and tokens is not None
            and len(tokens) == layers.shape(index)[0]
        )

    def _sequence_of(self, stack: str, *, are_keys: bool) -> str:
        """Return the token sequence that a kind of stack may have as its queries or keys."""
        decodes = stack == "decoder" or (stack == "cross" and not are_keys)
        return "decoder" if decodes and "decoder" in self._batch.sequences else "input"

    def _text(self, sequence: str, index: int) -> Tokens | None:
        if sequence not in self._batch.tokens:
            return None
        tokens, virtual = self._batch.tokens[sequence][index], self._virtual
        if sequence == "input" and virtual is not None and not virtual.only_keys:
            return _after_virtual(virtual, tokens)
        return tokens

    def _side(
        self, name: str, index: int, named: Mapping[str, Tokens], *, are_keys: bool
    ) -> Tokens:
        """Return the tokens of the queries or keys of a stack: the first whose number fits.

        `named` has the query tokens of other stacks, and of this stack if `are_keys` is True.
        """
        layers = self._stacks[name]
        count = layers.shape(index)[are_keys]
        if are_keys and layers.runs[0].summaries is not None:
            return _with_summaries(layers, index, named[name])
        # With windows, it is not known to which picture a key belongs, so name keys by their index.
        is_unknown = self._pixels is not None and layers.stack not in ("connector", "pooling")
        if not (are_keys and is_unknown and any(layers.windows)):
            for tokens in self._candidates(name, index, named, are_keys=are_keys):
                if tokens is not None and len(tokens) == count:
                    return tokens
        return _numbered_tokens(count)

    def _candidates(
        self, name: str, index: int, named: Mapping[str, Tokens], *, are_keys: bool
    ) -> Iterator[Tokens | None]:
        """Yield tokens that the queries or keys of a stack may be."""
        layers, input_text = self._stacks[name], self._text("input", index)
        text = self._text(self._sequence_of(layers.stack, are_keys=are_keys), index)
        if layers.stack in _READING and text is not None:
            tokens = self._named_tokens(text, index, named)
            yield tokens
            # Virtual tokens that are queries, too, are in the text already.
            if self._virtual is not None and text is input_text:
                yield _after_virtual(self._virtual, tokens)
            if layers.stack == "decoder" and input_text is not None:
                yield joined_tokens(tokens, self._named_tokens(input_text, index, named))
        if are_keys or any(map(PATCHES_ASK.search, layers.names)):
            seen = [
                stack
                for stack in named
                if self._stacks[stack].stack in _SEEING
                and not self._chooses_queries(self._stacks[stack])
            ]
            yield from map(named.__getitem__, seen)
            count, has_windows = layers.shape(index)[1], any(layers.windows)
            kinds = ("audio",) if has_windows else ("audio", "vision")
            towers = [stack for stack in seen if self._stacks[stack].stack in kinds]
            for stack in towers if are_keys else ():
                # The model may complete windows of frames (Granite Speech).
                padding = ["[PAD]"] * (count - len(named[stack]) if has_windows else 0)
                yield joined_tokens(
                    named[stack], place_tokens(padding, special=[True] * len(padding))
                )
                # Keys may also be the queries (Idefics 2).
                if name in named:
                    yield joined_tokens(named[stack], named[name])
                # Keys may have no padding (Mllama).
                yield self._media_tokens(stack, index, count)
        if layers.stack in _SEEING:
            yield self._with_image(name, index)
            yield self._media_tokens(name, index, layers.shape(index)[are_keys])
        if len(set(layers.windows)) == 1 and not self._chooses_queries(layers):
            yield series_tokens(
                self._batch.arguments,
                self._model.config,
                layers.shape(index)[are_keys],
                layers.windows[0],
                index=self._batch.index,
                future=layers.stack in ("decoder", "cross") and not are_keys,
            )

    def _chooses_queries(self, layers: StackLayers) -> bool:
        """Whether each head of a stack has its own order of queries (Informer)."""
        return any(
            CHOOSES_QUERIES.search(type(self._model.get_submodule(name)).__name__)
            for name in layers.names
        )

    def _with_image(self, name: str, index: int) -> Tokens | None:
        """Return the query tokens of a stack that attends over an image and the text together.

        Return None if the queries are other tokens, or if it is not known whether the image or the
        text comes first.
        """
        layers = self._stacks[name]
        text, pixels = self._text("input", index), self._pixels
        first = family_of(self._model.config).image_first
        if first is None or layers.stack == "vision" or text is None or pixels is None:
            return None
        count = layers.shape(index)[0] - len(text)
        image = self._patches(layers, count, [0 if self._num_pictures == 1 else None])
        if image is None:
            return None
        return joined_tokens(image, text) if first else joined_tokens(text, image)

    def _named_tokens(self, tokens: Tokens, index: int, named: Mapping[str, Tokens]) -> Tokens:
        """Rename the tokens of a text that stand for image patches or for parts of a sound.

        Patches are named by row and column, and parts of a sound by time. If rows and columns or
        times are not known, tokens are named by the number of their image or sound.
        """
        config = self._model.config
        runs = runs_of(tokens, config, IMAGE_TOKEN_IDS)
        if runs:
            packed = with_packed_images(tokens, runs, self._packed)
            if packed is not None and self._num_pictures:
                return packed
            ends = any(name.endswith("image_newline") for name, _ in self._model.named_parameters())
            placed = (
                with_image_runs(tokens, runs, shapes, has_newlines=ends)
                for shapes in self._shapes(index, named)
            )
            unknown = with_image_runs(tokens, runs, None)
            tokens = next((one for one in placed if one.text != unknown.text), unknown)
            # Some pictures cannot be rebuilt, such as those of ColQwen2, whose patches are padded.
            grids = (grid for grid in tokens.pictured if (grid.image or 0) < self._num_pictures)
            tokens = with_times(replace(tokens, grids=tuple(grids)), self._batch.arguments)
        resampled = any(_is_resampler(layers, index) for layers in self._stacks.values())
        return with_sound_runs(tokens, None if resampled else self._sound, self._model)

    def _shapes(self, index: int, named: Mapping[str, Tokens]) -> Iterator[list[tuple[int, int]]]:
        """Yield the possible numbers of rows and columns of patches of each image in a text.

        `named` has the query tokens of other stacks, by the name of the stack. A film counts as one
        image for each patch along time.
        """
        grid = grid_of(self._batch.arguments)
        if grid is not None:
            yield [
                (rows, columns) for frames, rows, columns in grid.tolist() for _ in range(frames)
            ]
            return
        if any(_is_resampler(layers, index) for layers in self._stacks.values()):
            # A resampler summarises the patches of an image as a few tokens. Each of these tokens
            # stands for the whole image, so it has no row and column.
            return
        towers = [
            tokens
            for name, tokens in named.items()
            if self._stacks[name].stack == "vision" and tokens.grids
        ]
        if towers:
            yield [(grid.rows, grid.columns) for grid in towers[-1].grids]
        # The last convolution returns the fewest patches.
        for number, *shape in reversed(self._convolved):
            yield [(shape[0], shape[1])] * number

    def _media_tokens(self, name: str, index: int, count: int) -> Tokens | None:
        """Return tokens for `count` image patches or sound frames, or None if they are unknown."""
        layers = self._stacks[name]
        arguments = self._batch.arguments
        are_queries = layers.shape()[0] == count
        if are_queries and name in self._layouts:
            layout = self._layouts[name]
            are_known = len(layout.grids) == self._num_pictures
            images = range(self._num_pictures) if are_known else [None] * len(layout.grids)
            padding = count - sum(map(prod, layout.grids))
            tokens = grid_tokens(layout.grids, after=["[PAD]"] * padding, images=images)
            return with_times(tokens, arguments)
        grid = given_grid(arguments, index, count)
        if grid is not None:
            return grid_tokens([grid], after=["[PAD]"] * (count - prod(grid)))
        pixels, windows = self._pixels, set(layers.windows)
        if are_queries and windows != {()} and pixels is not None:
            # If layers have different windows, their tokens are in different orders, so a token has
            # no name that fits all layers.
            return self._windows(name, windows.pop()) if len(windows) == 1 else None
        if pixels is None:
            return self._frames(layers, count)
        if not self._shows_patches(layers):
            return None
        numbers = self._pictures_of_grids(pixels)
        # Tokens of each image may have special tokens and padding (Mllama).
        patches = self._patches(layers, count, numbers)
        if patches is None and numbers:
            patches = self._windows(name, [count // len(numbers)] * len(numbers))
        return patches

    def _frames(self, layers: StackLayers, count: int) -> Tokens | None:
        """Return the `count` tokens of sound frames, or None if `count` does not fit the sound."""
        # Windows of frames are consecutive. The last one may have padding.
        window = max((*layers.windows[0], 1)) if len(layers.windows) else 1
        arguments = (self._sound, self._model, count, self._batch.sound_end)
        before, _ = extra_tokens(self._model, layers.names[0])
        # A spectrogram may be divided into patches like an image.
        for _, rows, columns in self._convolved:
            if rows > 1 and rows * columns + len(before) == count:
                return frame_tokens(*arguments, bands=rows, before=before)
        return frame_tokens(*arguments, window=window)

    def _patches(
        self, layers: StackLayers, count: int, images: Sequence[int | None]
    ) -> Tokens | None:
        """Return the `count` tokens of image patches, or None if `count` does not fit the images.

        `images` has the index of each image's picture in the record, or None.
        """
        sizes = self._image_sizes
        if sizes is None or len(sizes) != len(images):
            height, width = self._pixels.shape[-2:]
            sizes = [(height, width)] * len(images)
        return patch_tokens(
            self._model, layers.names[0], sizes, count, images=images, convolved=self._convolved
        )

    def _shows_patches(self, layers: StackLayers) -> bool:
        """Whether the tokens of a stack may be patches of pictures in the model's input."""
        if self._pixels is None or self._pixels.dim() < 4:
            return False
        asks = any(NOT_PATCHES.search(name) for name in layers.names)
        # The only attention of a convolutional encoder is between its patches (Chameleon).
        is_self = layers.stack == "pooling" and len(set(layers.shape())) == 1
        return layers.stack == "encoder" or ((layers.stack == "vision" or is_self) and not asks)

    def _pictures_of_grids(self, pixels: torch.Tensor) -> list[int | None]:
        """Return, for each grid of patches, the index of its picture in the record.

        An image has one grid and one picture. A film has one picture per frame. A patch of a film
        may cover several consecutive frames. Then these frames together have one grid, whose
        picture is the first of them. If the number of frames is not a multiple of the frames of a
        patch, each frame has one grid. All indices are None if the number of pictures is not the
        number of images or frames. `pixels` are the pixel values that the model gets.
        """
        many = prod(pixels.shape[1:-3])
        frames = many if pixels.dim() > 4 else len(pixels) // self._batch.size
        step = frames_per_patch(self._model.config)
        frame_numbers = range(0, frames, step) if frames % step == 0 else range(frames)
        are_known = self._num_pictures == frames
        return [number if are_known else None for number in frame_numbers]

    def _windows(self, name: str, windows: Sequence[int]) -> Tokens | None:
        """Return tokens for the queries of a stack if each window has the patches of one picture.

        `windows` has the number of queries in each window. Return None if windows and pictures do
        not fit.
        """
        layers = self._stacks[name]
        if len(windows) != self._num_pictures or not self._shows_patches(layers):
            return None
        parts = [self._patches(layers, count, [number]) for number, count in enumerate(windows)]
        tokens = [part for part in parts if part is not None]
        if len(tokens) < len(parts):
            return None
        names = numbered([list(part.text) for part in tokens])
        return reduce(
            joined_tokens,
            [replace(part, text=tuple(text)) for part, text in zip(tokens, names, strict=True)],
        )


def _listed(stacks: Sequence[str]) -> str:
    names = ", ".join(map(quote, stacks))
    return f"stack {names}" if len(stacks) == 1 else f"stacks {names}"


def _with_summaries(layers: StackLayers, index: int, tokens: Tokens) -> Tokens:
    """Return the keys of a stack with summaries of `tokens`, the tokens of its queries.

    The keys are the tokens and then the summaries or, in the stack of an indexer, only summaries.
    """
    run, num_keys = layers.runs[0], layers.shape(index)[1]
    positions = run.positions[index].queries if run.positions else None
    if positions is None:
        positions = torch.arange(len(tokens))
    only = layers.stack == "indexer"
    count = num_keys if only else num_keys - len(tokens)
    groups = run.summaries.tokens(positions, count) if run.summaries else []
    names = [f"tokens {group[0]}–{group[-1]}" if group else "padding" for group in groups]
    summaries = place_tokens(names)
    if only:
        return summaries
    if tokens.words is None:
        # Otherwise, the texts of the summaries would also be searched for words.
        words = find_words(tokens.text, tokens.special, tokens.sequence)
        tokens = replace(tokens, words=words)
    return joined_tokens(tokens, summaries)


def _after_virtual(virtual: VirtualTokens, tokens: Tokens) -> Tokens:
    """Return the virtual tokens followed by the tokens of a text."""
    names = [f"[virtual{number}]" for number in range(virtual.count)]
    return joined_tokens(place_tokens(names, special=[True] * virtual.count), tokens)


def _is_resampler(layers: StackLayers, index: int) -> bool:
    """Whether the queries of a stack are a few tokens that summarise all patches of an image."""
    num_queries, num_keys = layers.shape(index)
    # If the layer has windows, each window has the patches of one image. Then only the queries of
    # one window summarise an image.
    window_size = max(layers.windows[0] or (num_queries,))
    if layers.stack == "connector":
        return num_queries != num_keys
    return layers.stack == "pooling" and 1 < window_size < num_keys


def _are_channels(layers: StackLayers) -> bool:
    """Whether the queries of a stack are channels of vectors, and not patches (Florence-2)."""
    return any("channel_" in name for name in layers.names)


def _numbered_tokens(count: int) -> Tokens:
    """Return tokens that are named by their index, such as ``[0]``."""
    return place_tokens([f"[{position}]" for position in range(count)])
