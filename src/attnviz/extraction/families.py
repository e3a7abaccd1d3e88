"""What transformers' models call things, and where single families differ from all others.

Every name of an argument, a configuration's attribute, a parameter, a module or a model type that
extraction knows stands here; other modules ask this one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

__all__ = [
    "ATTENTION_CLASS",
    "AUDIO_MODULE",
    "CACHES",
    "CONNECTOR_MODULE",
    "CROSS_MODULE",
    "FRAME_MASKS",
    "IMAGES",
    "IMAGE_GRIDS",
    "IMAGE_MERGE_SIZES",
    "IMAGE_TOKEN_IDS",
    "LANGUAGE_MODEL",
    "NOT_PATCHES",
    "NOT_TEXT",
    "POSITION_TABLE",
    "SOFTMAX_CODE",
    "SOUNDS",
    "SOUND_TOKEN_IDS",
    "TOKENIZER_EXTRAS",
    "TOKENS_AFTER_PATCHES",
    "TOKENS_BEFORE_PATCHES",
    "VISION_MODULE",
    "AttentionSize",
    "Family",
    "ShiftedWindows",
    "attention_size",
    "class_prefixes",
    "config_values",
    "families_in",
    "family_of",
    "feature_widths",
    "frames_in_pixels",
    "frames_per_patch",
    "has_codebooks",
    "has_stages",
    "is_compiled",
    "longest_together",
    "merge_size",
    "patch_sizes",
    "samples_per_frame",
    "shifted_windows",
    "tower_of",
    "window_order",
]

# Arguments of a model.
#: Names, or beginnings of names, under which a model takes images.
IMAGES = ("pixel_values", "flattened_patches")
#: The same for sounds.
SOUNDS = ("input_values", "input_features", "audio_values")
#: Frames, rows and columns of patches of each image or film; ``_hw`` without frames.
IMAGE_GRIDS = ("image_grid_thw", "image_grid_hw", "video_grid_thw", "grid_thw")
#: Rows (and columns) of patches that become one token of the text, given with the images.
IMAGE_MERGE_SIZES = ("merge_sizes", "image_merge_sizes", "video_merge_sizes")
#: Which features of a sound are not padding.
FRAME_MASKS = ("feature_attention_mask", "input_features_mask", "features_mask", "attention_mask")
#: Arguments that hold what a model read before.
CACHES = ("past_key_values", "cache_params", "mems", "past_buckets_states", "state")
#: What tokenizers return beside what models take.
TOKENIZER_EXTRAS = {
    "labels",
    "length",
    "num_truncated_tokens",
    "offset_mapping",
    "overflow_to_sample_mapping",
    "overflowing_tokens",
    "special_tokens_mask",
}

# Attributes of a configuration.
#: The ids of tokens that stand for patches of images, or for frames of sounds.
IMAGE_TOKEN_IDS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
SOUND_TOKEN_IDS = ("audio_token_id", "audio_token_index")
# Configurations that have one of these have stages, from one to the next of which patches become
# coarser.
_STAGES = ("depths", "strides", "patch_sizes", "backbone_config", "backbone")
_BINS = ("num_mel_bins", "feature_size", "input_feat_per_channel", "feature_projection_input_dim")
_NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_HEAD_DIM = ("qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim")
_NUM_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_WIDTH = ("hidden_size", "d_model")
# A tower's, not a configuration's: rows and columns of patches that become one token of the text.
_MERGE_SIZE = "spatial_merge_size"

# Names of modules, of their classes, and what their code calls.
ATTENTION_CLASS = re.compile("attention|attn", re.IGNORECASE)
#: Names that code which computes attention by itself refers to; linear attention has none of them.
SOFTMAX_CODE = re.compile(
    "softmax|scaled_dot_product_attention|logsumexp|multi_head_attention", re.IGNORECASE
)
CROSS_MODULE = re.compile(r"cross|enc(oder)?_?dec|encoder_att", re.IGNORECASE)
#: What models of several kinds of input call the part that reads text.
LANGUAGE_MODEL = "language_model"
VISION_MODULE = re.compile(r"vision|visual|image|^vit$", re.IGNORECASE)
AUDIO_MODULE = re.compile(r"audio|speech", re.IGNORECASE)
#: What turns patches or frames into tokens of a text.
CONNECTOR_MODULE = re.compile(
    r"q_?former|resampler|perceiver|connector|projector|abstractor", re.IGNORECASE
)
#: Modules whose queries ask for something in an image: these are not its patches.
NOT_PATCHES = re.compile("decoder|mask_head")
POSITION_TABLE = re.compile(r"^(wpe|embed_positions|position_embeddings?|pos_emb(eds?)?)$")
#: Position tables in modules of such a name are not those of a text.
NOT_TEXT = re.compile(r"vision|visual|image|audio|video", re.IGNORECASE)

# Parameters that become tokens beside the patches, in the order of those tokens, and how such
# tokens are shown.
TOKENS_BEFORE_PATCHES = {
    "cls_token": "CLS",
    "class_token": "CLS",
    "class_embedding": "CLS",
    "distillation_token": "DIST",
    "register_tokens": "REG",
}
TOKENS_AFTER_PATCHES = {"detection_tokens": "DET"}


@dataclass(frozen=True)
class Family:
    """Where the models of one type differ from others of their kind.

    Attributes
    ----------
    prompt_looks_both_ways : bool
        The prompt attends both ways, and what is written after it only back; ``token_type_ids``
        say which is which, 1 for what is written.
    class_token_last : bool
        The class token comes after the patches.
    own_patch_order : bool
        Patches are in an order that only the model's code knows.
    colours_last : bool
        Flattened patches hold the colours of each pixel side by side, not each colour by itself.
    image_first : bool or None
        In one attention over a text and an image: whether the image's tokens come first. None where
        the model has none, or it is not known.
    unmasked_with_cache : bool
        A forward with a cache masks nothing in the decoder: it is meant for one token at a time.
    pools_queries : bool
        Layers have fewer queries than the text has tokens: the model pools its tokens.
    """

    prompt_looks_both_ways: bool = False
    class_token_last: bool = False
    own_patch_order: bool = False
    colours_last: bool = False
    image_first: bool | None = None
    unmasked_with_cache: bool = False
    pools_queries: bool = False


_COMMON = Family()
# By ``config.model_type``.
_FAMILIES = {
    "canine": Family(pools_queries=True),
    "cosmos3_edge": Family(colours_last=True),
    "cosmos3_edge_vision": Family(colours_last=True),
    "fsmt": Family(unmasked_with_cache=True),
    "funnel": Family(pools_queries=True),
    "git": Family(image_first=True),
    "hiera": Family(own_patch_order=True),
    "layoutlmv3": Family(image_first=False),
    "llama4": Family(class_token_last=True),
    "llama4_vision_model": Family(class_token_last=True),
    "paligemma": Family(prompt_looks_both_ways=True),
    "perceiver": Family(pools_queries=True),
    "vit_mae": Family(own_patch_order=True),
}


def family_of(config: Any) -> Family:
    """The family of a configuration; without a configuration, or of an unknown type, the usual."""
    return _FAMILIES.get(getattr(config, "model_type", None) or "", _COMMON)


def families_in(config: Any) -> list[Family]:
    """The families of a configuration and of those inside of it."""
    return [family_of(each) for each in _configs_in(config)]


def _configs_in(config: Any) -> Iterator[Any]:
    """A configuration and those inside of it."""
    yield config
    for each in vars(config).values():
        if isinstance(each, PreTrainedConfig):
            yield from _configs_in(each)


def class_prefixes(config: Any) -> list[str]:
    """Return the prefixes of class names in models of a configuration, the longest first."""
    names = {type(each).__name__.removesuffix("Config") for each in _configs_in(config)}
    names |= {name.removesuffix("Text") for name in names}
    return sorted(names, key=len, reverse=True)


def config_values(config: Any, name: str) -> set[Any]:
    """What a configuration and those inside of it hold under a name."""
    return {getattr(each, name, None) for each in _configs_in(config)}


def has_stages(config: Any) -> bool:
    """Whether patches become coarser from stage to stage."""
    return any(getattr(each, name, None) for each in _configs_in(config) for name in _STAGES)


def patch_sizes(config: Any) -> list[tuple[int, int]]:
    """Heights and widths of a patch in pixels that a configuration and its parts name."""
    sizes = []
    for settings in _configs_in(config):
        size = getattr(settings, "patch_size", None)
        if isinstance(size, int):
            sizes.append((size, size))
        elif isinstance(size, list | tuple) and len(size) == 2:
            sizes.append((int(size[0]), int(size[1])))
        film = getattr(settings, "tubelet_size", None)
        if isinstance(film, list | tuple) and len(film) == 3:
            sizes.append((int(film[1]), int(film[2])))
    return list(dict.fromkeys(sizes))


def frames_per_patch(config: Any) -> int:
    """How many frames of a film a patch goes through."""
    for settings in _configs_in(config):
        size = getattr(settings, "tubelet_size", None)
        if size is not None:
            return int(size if isinstance(size, int) else size[0])
    return 1


def frames_in_pixels(config: Any) -> int:
    """How many frames a row of pixel values holds, where patches are given as rows."""
    settings = getattr(config, "vision_config", config)
    return int(getattr(settings, "temporal_patch_size", 1) or 1)


def samples_per_frame(config: Any) -> int | None:
    """How many samples of a sound convolutions go on from frame to frame."""
    strides = getattr(config, "conv_stride", None)
    return prod(strides) if strides else None


def has_codebooks(config: Any) -> bool:
    """Whether a token may be several ids, one for each codebook of a codec of sound."""
    parts = (config, getattr(config, "decoder", None), getattr(config, "decoder_config", None))
    names = ("num_codebooks", "num_channels")
    return any(hasattr(part, name) for part in parts for name in names)


def feature_widths(config: Any, extractor: Any) -> set[int]:
    """How many numbers a feature of a sound may have, as a model or its extractor says."""
    stride = getattr(extractor, "stride", None) or 1
    parts = (extractor, config, getattr(config, "audio_config", None))
    values = {getattr(part, name, None) for part in parts for name in _BINS}
    widths = {each for each in values if isinstance(each, int)}
    # Some extractors put neighbouring features together.
    return widths | {each * stride for each in widths}


@dataclass(frozen=True)
class AttentionSize:
    """Numbers of heads and of key heads, and the dimensions of a head."""

    num_heads: int
    num_key_heads: int
    head_dim: int


def attention_size(model: nn.Module, name: str) -> AttentionSize | None:
    """The size of the attention module under a path; None where neither it nor a config says."""
    module, config = model.get_submodule(name), _config_of(model, name)
    num_heads = _first(module, _NUM_HEADS) or _first(config, _NUM_HEADS)
    head_dim, width = _first(module, _HEAD_DIM) or _first(config, _HEAD_DIM), _first(config, _WIDTH)
    if num_heads is None or (head_dim is None and width is None):
        return None
    groups = _first(module, ("num_key_value_groups",))
    num_key_heads = num_heads // groups if groups else _first(module, _NUM_KEY_HEADS)
    return AttentionSize(
        num_heads, num_key_heads or num_heads, head_dim or (width or 0) // num_heads
    )


def _config_of(model: nn.Module, name: str) -> Any:
    configs = (getattr(each, "config", None) for each in _around(model, name))
    return next((each for each in configs if each is not None), None)


def _first(source: Any, names: Iterable[str]) -> int | None:
    values = (getattr(source, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _owner_of(model: nn.Module, name: str, attribute: str) -> Any:
    """The innermost module around a path that has an attribute; None where none has it."""
    return next((each for each in _around(model, name) if hasattr(each, attribute)), None)


def _around(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """The module under a path and those around it, the innermost first."""
    while name:
        yield model.get_submodule(name)
        name = name.rpartition(".")[0]
    yield model


def merge_size(owner: Any) -> int:
    """Rows (and columns) of patches that a tower makes one token of the text of."""
    return int(getattr(owner, _MERGE_SIZE, 1))


def tower_of(model: nn.Module, name: str) -> Any:
    """The tower around a path that puts blocks of patches together; None where none does."""
    return _owner_of(model, name, _MERGE_SIZE)


@dataclass(frozen=True)
class ShiftedWindows:
    """Rows and columns of a layer's windows, and how far these are shifted.

    `size` is a number, a pair, or None if it is unknown.
    """

    size: Any
    shift: tuple[int, int]


def shifted_windows(model: nn.Module, name: str) -> ShiftedWindows:
    """Read the windows in which the module under a path attends (Swin, SAM)."""
    # A layer that shifts its windows says so around its attention, which knows their size too.
    owner = _owner_of(model, name, "shift_size") or _owner_of(model, name, "window_size")
    shift = getattr(owner, "shift_size", 0)
    # timm shifts rows and columns by numbers of their own.
    rows, columns = shift if isinstance(shift, tuple | list) else (shift, shift)
    return ShiftedWindows(getattr(owner, "window_size", None), (int(rows), int(columns)))


def window_order(tower: Any, grid: torch.Tensor, size: int) -> torch.Tensor | None:
    """The order in which a tower puts its blocks of patches into windows; None without windows."""
    window = getattr(getattr(tower, "config", None), "window_size", None)
    if tower is None or not window:
        return None
    own = getattr(tower, "get_window_index", None)
    if own is not None:
        return torch.as_tensor(own(grid)[0]).cpu()
    try:
        from transformers.vision_utils import get_vision_window_index
    except ImportError:
        return None
    patch = int(tower.config.patch_size)
    return torch.as_tensor(get_vision_window_index(grid, size, int(window), patch)[0]).cpu()


def is_compiled(model: nn.Module) -> bool:
    """Whether the model, a part of it or a forward was compiled in place."""
    return any(
        # By name: the class's own module takes seconds to import.
        type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
        for module in model.modules()
    )


# Rotary positions whose frequencies depend on the longest text of a batch.
_ROPES_OF_LENGTH = ("dynamic", "longrope")


def longest_together(config: PreTrainedConfig) -> float:
    """How many tokens a text may have to give the same attention in a batch as by itself.

    Infinity for most models; 0 where texts of a batch compete (experts that take so many tokens of
    all texts together); as long as rotary positions are the ones for short texts.
    """
    text: Any = config.get_text_config()
    if getattr(text, "expert_capacity", None) is not None:
        return 0.0
    bound = math.inf
    ropes = getattr(text, "rope_parameters", None) or {}
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, dict))):
        if rope.get("rope_type") in _ROPES_OF_LENGTH:
            own = rope.get("original_max_position_embeddings")
            bound = min(bound, float(own or getattr(text, "max_position_embeddings", 0) or 0))
    return bound
