"""Names that `attnviz.extraction` looks for in models, and functions that use these names.

The names are those of arguments, configuration attributes, parameters, modules and model types.
Most functions read a property of a model from its configuration or from its modules.

General rules read most models. ``PYTHONPATH=tests .venv/bin/python -m model_types NAME`` shows
whether they fit a model type. A property that the rules cannot find is an entry of `_FAMILIES`. A
new kind of property is also a field of `Family`, which the extraction reads. A test in
``tests/models/test_kinds_*.py`` must fail without the entry: it compares weights with the model's
own (``assert_own``), or names of patches with the queries that change with a patch
(``changed_queries``). ``make coverage`` renews ``docs/coverage.md``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

# The constants from `IMAGES` to `CACHES` are names of arguments of models.

#: Names, or beginnings of names, of arguments with images.
IMAGES = ("pixel_values", "flattened_patches")
#: Names of arguments with time series.
SERIES = ("past_values",)
#: Names, or beginnings of names, of arguments with sounds.
SOUNDS = ("input_values", "input_features", "audio_values")
#: Argument with the numbers of patches of each image along height and width, if all patches are
#: side by side in one row of pixels (MiniCPM-V).
PATCH_ROW_SIZES = "target_sizes"
#: Arguments with the numbers of patches of each image or film along time, height and width, or only
#: along height and width.
IMAGE_GRIDS = ("image_grid_thw", "image_grid_hw", "video_grid_thw", "grid_thw", PATCH_ROW_SIZES)
#: Arguments with the merge size n of each image: n x n patches become one token of the text.
IMAGE_MERGE_SIZES = ("merge_sizes", "image_merge_sizes", "video_merge_sizes")
#: Arguments with a mask of the feature vectors of sounds. The mask is 0 or False for padding.
FRAME_MASKS = ("feature_attention_mask", "input_features_mask", "features_mask", "attention_mask")
#: Arguments with results of an earlier forward for the same text, such as keys and values.
CACHES = ("cache", "past_key_values", "cache_params", "mems", "past_buckets_states", "state")
#: Names of entries in a tokenizer's output that are not passed to a model, even if it takes them.
TOKENIZER_EXTRAS = {
    "labels",
    "length",
    "num_truncated_tokens",
    "offset_mapping",
    "overflow_to_sample_mapping",
    "overflowing_tokens",
    "special_tokens_mask",
}

# The constants from `IMAGE_TOKEN_IDS` to `_BINS` are names of attributes of configurations.

#: Attributes with the id of tokens whose embeddings are replaced by patches of an image or film.
IMAGE_TOKEN_IDS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
#: Attributes with the id of tokens whose embeddings are replaced by frames of a sound.
SOUND_TOKEN_IDS = ("audio_token_id", "audio_token_index")
# Attributes of image models whose layers may form stages. A stage is a group of layers, with larger
# patches than the stage before it.
_STAGES = ("depths", "strides", "patch_sizes", "backbone_config", "backbone")
# Attributes with the size of a feature vector of a sound.
_BINS = ("num_mel_bins", "feature_size", "input_feat_per_channel", "feature_projection_input_dim")

# The constants from `_NUM_HEADS` to `_WIDTH` are names of attributes of attention modules or
# configurations. The attributes have the numbers of heads and the sizes of vectors.

_NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_HEAD_DIM = ("qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim")
_NUM_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_WIDTH = ("hidden_size", "d_model")

#: Attribute of an image encoder ("tower") with its merge size n: n x n patches become one token of
#: the text.
MERGE_SIZE = "spatial_merge_size"

# The constants from `ATTENTION_CLASS` to `NOT_TEXT` are compared with names of modules, names of
# their classes, or names in their code.

#: Names of the classes of attention modules.
ATTENTION_CLASS = re.compile("attention|attn", re.IGNORECASE)
#: Names of the classes of norms.
NORM_CLASS = re.compile("norm", re.IGNORECASE)
#: Names in the code of modules that compute a softmax. Linear attention uses none of them.
SOFTMAX_CODE = re.compile(
    "softmax|scaled_dot_product_attention|logsumexp|multi_head_attention", re.IGNORECASE
)
#: Names of the classes of attention modules whose heads choose queries, each in its own order
#: (Informer).
CHOOSES_QUERIES = re.compile("ProbSparse")
#: Functions of torch that compute attention.
ATTENTION_FUNCTION = re.compile("scaled_dot_product_attention|multi_head_attention|flex_attention")
#: Names of children and parameters of modules that pool tokens by attention.
POOLING_NAME = re.compile(
    r"attention|attn|^att(_|$)|^(w_?)?(q|qkv|query|queries)(_?proj)?$|^to_qk?v?$", re.IGNORECASE
)
#: Functions that compute linear attention or a state-space model, and the kinds of their formulas.
#: The first functions are those of transformers. Then come those of the packages
#: flash-linear-attention and mamba-ssm, for models that call them directly. Lightning attention is
#: not a function. Its modules have the attribute `LIGHTNING_RATES`.
LINEAR_RULES = {
    "torch_chunk_gated_delta_rule": "delta rule",
    "torch_recurrent_gated_delta_rule": "delta rule",
    "chunk_kimi_delta_attention": "delta rule",
    "recurrent_kimi_delta_attention": "delta rule",
    "mamba2_chunk_scan": "Mamba-2",
    "mamba_selective_scan": "Mamba-1",
    "chunk_gated_delta_rule": "delta rule",
    "fused_recurrent_gated_delta_rule": "delta rule",
    "chunk_delta_rule": "delta rule",
    "fused_recurrent_delta_rule": "delta rule",
    "chunk_kda": "delta rule",
    "fused_recurrent_kda": "delta rule",
    "mamba_chunk_scan_combined": "Mamba-2",
    "selective_scan_fn": "Mamba-1",
    "lightning attention": "lightning",
}
#: Attribute of modules with lightning attention: the decay rates of the heads.
LIGHTNING_RATES = "slope_rate"
# Attributes of modules that compute only some pairs of tokens, and the kinds of these modules.
_SPARSE = {
    "one_sided_attn_window_size": "Longformer",
    "local_radius": "local LongT5",
    "num_random_blocks": "BigBird",
    "num_chunks_before": "Reformer",
}
#: Attribute of attention modules that choose keys before the softmax: the module that scores the
#: keys, or None if the layer uses the choice of an earlier layer, or does not choose.
INDEXER = "indexer"
#: Names of the classes of modules that attend to the outputs of earlier layers for the same token.
#: Their attention is not one between tokens, so it is not captured.
OVER_LAYERS = re.compile("AttentionResidual$")
CROSS_MODULE = re.compile(r"cross|enc(oder)?_?dec|encoder_att", re.IGNORECASE)
#: Name of the submodule that is the language model, in a model with several kinds of input.
LANGUAGE_MODEL = "language_model"
VISION_MODULE = re.compile(r"vision|visual|image|^vit$|^vqmodel$", re.IGNORECASE)
#: Names of attention modules whose queries are patches and whose keys are other tokens.
PATCHES_ASK = re.compile("image_to_|image_layers")
AUDIO_MODULE = re.compile(r"audio|speech", re.IGNORECASE)
#: Names of modules that turn patches or frames into tokens of a text.
CONNECTOR_MODULE = re.compile(
    r"q_?former|resampler|perceiver|connector|projector|abstractor", re.IGNORECASE
)
#: In image models, names of modules whose queries are not patches, but objects or channels.
NOT_PATCHES = re.compile("decoder|mask_head|channel_")
POSITION_TABLE = re.compile(r"^(wpe|embed_positions|position_embeddings?|pos_emb(eds?)?)$")
#: Parts of the paths of modules that process images, films or sounds. Position embeddings in these
#: modules are not those of a text.
NOT_TEXT = re.compile(r"vision|visual|image|audio|video", re.IGNORECASE)

# Parameters that a model adds as tokens before the patches, in the order of the tokens. The value
# is the name of the token: CLS is shown as [CLS].
TOKENS_BEFORE_PATCHES = {
    "cls_token": "CLS",
    "class_token": "CLS",
    "class_embedding": "CLS",
    "distillation_token": "DIST",
    "register_tokens": "REG",
}
# Parameters that a model adds as tokens after the patches, and the names of these tokens.
TOKENS_AFTER_PATCHES = {"detection_tokens": "DET"}


@dataclass(frozen=True)
class Family:
    """Properties of models of one type (``config.model_type``). Defaults apply to most models.

    Attributes
    ----------
    bidirectional_prompt : bool
        Whether attention is bidirectional in the prompt and causal in the text after it, which the
        model generates or is forced to produce. Then ``token_type_ids`` must be 1 for the tokens of
        the text after the prompt.
    class_token_last : bool
        Whether the class token comes after the patches.
    custom_patch_order : bool
        Whether patches are in an order that only the model's code defines, or tokens are not
        patches. Such tokens are named by their index and not by row and column.
    colours_last : bool
        Whether the colours are the last axis of the pixel values in a flattened patch (a row of
        ``pixel_values``).
    image_first : bool or None
        Whether the tokens of the image come before the text in layers that attend over image and
        text. None if the model has no such layers, or if the order is not known.
    pools_queries : bool
        Whether some layers have fewer queries than the text has tokens, because they pool tokens.
    """

    bidirectional_prompt: bool = False
    class_token_last: bool = False
    custom_patch_order: bool = False
    colours_last: bool = False
    image_first: bool | None = None
    pools_queries: bool = False


_COMMON = Family()
# Families by ``config.model_type``. All other models have the family `_COMMON`.
_FAMILIES = {
    "canine": Family(pools_queries=True),
    "cosmos3_edge": Family(colours_last=True),
    "cosmos3_edge_vision": Family(colours_last=True),
    "funnel": Family(pools_queries=True),
    "git": Family(image_first=True),
    "hiera": Family(custom_patch_order=True),
    "layoutlmv3": Family(image_first=False),
    # Points that a convolution found, row by row.
    "lightglue": Family(custom_patch_order=True),
    "llama4_vision_model": Family(class_token_last=True),
    "paligemma": Family(bidirectional_prompt=True),
    "superglue": Family(custom_patch_order=True),
    "vit_mae": Family(custom_patch_order=True),
}


def family_of(config: Any) -> Family:
    """Return the family of a configuration, or `_COMMON` if its model type is not known."""
    return _FAMILIES.get(getattr(config, "model_type", None) or "", _COMMON)


def families_in(config: Any) -> list[Family]:
    """Return the families of a configuration and of its nested configurations."""
    return [family_of(nested) for nested in _configs_in(config)]


def _configs_in(config: Any) -> Iterator[Any]:
    """Yield a configuration and all configurations nested in it."""
    yield config
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield from _configs_in(value)


def config_values(config: Any, *names: str) -> set[Any]:
    """Return the values of attributes in a configuration and its nested configurations.

    The result contains None if any of these configurations lacks one of the attributes.
    """
    return {getattr(nested, name, None) for nested in _configs_in(config) for name in names}


def is_encoder_decoder(config: Any) -> bool:
    """Whether a model with this configuration has an encoder and a decoder.

    The configuration of InstructBLIP does not say so. That of its language model does.
    """
    configs = (config, getattr(config, "text_config", None))
    return any(getattr(part, "is_encoder_decoder", False) for part in configs)


def has_stages(config: Any) -> bool:
    """Whether the layers of an image model may form stages with patches of different sizes."""
    return any(getattr(nested, name, None) for nested in _configs_in(config) for name in _STAGES)


def patch_sizes(config: Any) -> list[tuple[int, int]]:
    """Return the patch sizes, (height, width) in pixels, in `config` and nested configurations."""
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
    """Return the number of consecutive frames of a film that one patch covers (default 1).

    This is for models that get whole frames (VideoMAE). `frames_in_pixels` is for models that get
    flattened patches.
    """
    for settings in _configs_in(config):
        size = getattr(settings, "tubelet_size", None)
        if size is not None:
            return int(size if isinstance(size, int) else size[0])
    return 1


def frames_in_pixels(config: Any) -> int:
    """Return the number of consecutive frames of a film whose pixels are in one flattened patch.

    Models such as Qwen2-VL get flattened patches: each row of ``pixel_values`` has the pixels of
    one patch. They get an image as several equal frames.
    """
    settings = getattr(config, "vision_config", config)
    return int(getattr(settings, "temporal_patch_size", 1) or 1)


def conv_strides(model: nn.Module) -> list[int]:
    """Return the strides after 0, 1, 2 … convolutions of a model's sound encoder together.

    The convolutions are those of all modules whose paths name a sound or, without such modules, of
    the whole model.
    """
    convolutions = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.Conv1d | nn.Conv2d)
    ]
    inside = [module for path, module in convolutions if AUDIO_MODULE.search(path)]
    strides = (module.stride[0] for module in inside or [module for _, module in convolutions])
    return list(accumulate(strides, mul, initial=1))


def has_codebooks(config: Any) -> bool:
    """Whether a token may consist of several ids, one for each codebook of an audio codec."""
    parts = (config, getattr(config, "decoder", None), getattr(config, "decoder_config", None))
    names = ("num_codebooks", "num_channels")
    return any(hasattr(part, name) for part in parts for name in names)


def feature_widths(config: Any) -> set[Any]:
    """Return the possible sizes of a sound's feature vectors in a configuration."""
    return config_values(config, *_BINS)


def attention_size(model: nn.Module, name: str) -> tuple[int, int, int] | None:
    """Return the size of the attention module at path `name`, or None if it is not known.

    The result is the number of query heads, the number of key heads, and the size of a query or
    key. The numbers are read from the attributes of the module and from a configuration. This is
    the configuration of the module itself or, if it has none, of the innermost module around it
    that has one.
    """
    module, config = model.get_submodule(name), _config_of(model, name)
    num_heads = _first_size(_NUM_HEADS, module, config)
    head_dim, width = _first_size(_HEAD_DIM, module, config), _first_size(_WIDTH, config)
    if num_heads is None or (head_dim is None and width is None):
        return None
    groups = _first_size(("num_key_value_groups",), module)
    num_key_heads = num_heads // groups if groups else _first_size(_NUM_KEY_HEADS, module)
    return num_heads, num_key_heads or num_heads, head_dim or (width or 0) // num_heads


def sparse_kind(module: nn.Module) -> str | None:
    """Return the kind of a module whose own code computes only some pairs of tokens, or None.

    Also return None for LongT5 with global blocks, which cannot be captured.
    """
    if hasattr(module, "global_block_size"):
        return None
    return next((kind for name, kind in _SPARSE.items() if hasattr(module, name)), None)


def linear_size(module: Any) -> int | None:
    """Return how many numbers per token a record keeps of a linear layer, or None if not known."""
    size = None
    if hasattr(module, "num_k_heads"):  # Gated delta rule.
        size = 2 * (module.num_k_heads * module.head_k_dim + module.num_v_heads)
    elif hasattr(module, "qkv_dim"):  # Kimi delta attention.
        size = 3 * module.qkv_dim + module.num_heads
    elif hasattr(module, LIGHTNING_RATES):
        size = 2 * module.num_attention_heads * (module.head_dim + 1)
    elif hasattr(module, "n_groups"):  # Mamba-2.
        size = 2 * (module.n_groups * module.ssm_state_size + module.num_heads)
    elif hasattr(module, "ssm_state_size"):  # Mamba-1.
        size = 3 * module.intermediate_size + 2 * module.ssm_state_size
    return size


def indexer_of(module: Any) -> nn.Module | None:
    """Return the indexer of an attention module or of its compressor, or None.

    A compressor computes summaries of several tokens, to which the module also attends
    (DeepSeek-V4). Its indexer chooses summaries.
    """
    indexer = getattr(module, INDEXER, None) or summary_indexer(module)
    return indexer if isinstance(indexer, nn.Module) else None


def summary_indexer(module: Any) -> Any:
    """Return the indexer of the compressor of an attention module, or None."""
    return getattr(getattr(module, "compressor", None), INDEXER, None)


@dataclass(frozen=True)
class Summaries:
    """Summaries of consecutive tokens, to which a layer attends in addition to the tokens.

    The tokens are divided into windows. The first window begins at the first position of the batch,
    even if it is padding. Each complete window has a summary.

    Attributes
    ----------
    size : int
        Number of positions of a window.
    overlap : bool
        Whether a summary also combines the tokens of the window before its own.
    """

    size: int
    overlap: bool

    def tokens(self, positions: torch.Tensor, count: int) -> list[range]:
        """Return the indices of the tokens that each of the first `count` summaries combines.

        `positions` has the position of each token in the batch. A range is empty if a summary
        combines only padding.
        """
        ends = torch.arange(1, count + 1) * self.size
        starts = (ends - self.size * (2 if self.overlap else 1)).clamp(min=0)
        pairs = torch.searchsorted(positions, torch.stack([starts, ends], dim=1).flatten())
        return [range(start, stop) for start, stop in pairs.view(count, 2).tolist()]


def summaries_of(module: Any) -> Summaries | None:
    """Return the summaries to which an attention module attends, or None (DeepSeek-V4)."""
    compressor = getattr(module, "compressor", None)
    size = getattr(compressor, "compress_rate", None)
    return None if size is None else Summaries(size, overlap=hasattr(compressor, INDEXER))


def indexer_size(module: Any) -> int | None:
    """Return how many numbers per token a record keeps of the indexer of an attention module.

    Return None if the module has no indexer, if the indexer scores blocks of keys, or if the number
    is not known.
    """
    indexer = getattr(module, INDEXER, None)
    heads, key_dim = (getattr(indexer, name, None) for name in ("n_heads", "head_dim"))
    if heads is None or key_dim is None or indexer_blocks(indexer) is not None:
        return None
    return int((heads + 1) * key_dim + heads)


@dataclass(frozen=True)
class IndexerBlocks:
    """Blocks of keys that an indexer scores, or whose summaries it scores.

    Attributes
    ----------
    size : int
        Number of keys of a block.
    num_heads : int
        Number of heads of the indexer, each of which chooses blocks.
    count_padding : bool
        Whether the first block begins at the first position of the batch, even if it is padding.
        Otherwise, it begins at the first token.
    takes_tail : bool
        Whether a query attends to its own block even if this block has no score, because it is not
        complete.
    as_summaries : bool
        Whether the layer attends to a summary of each block, and not to the keys of the block.
    """

    size: int
    num_heads: int = 1
    count_padding: bool = False
    takes_tail: bool = True
    as_summaries: bool = False


def indexer_blocks(indexer: Any) -> IndexerBlocks | None:
    """Return the blocks that an indexer scores.

    Return None if it scores single keys, or if `indexer` is None.
    """
    if hasattr(indexer, "block_size"):  # MiniMax-M3.
        return IndexerBlocks(indexer.block_size, indexer.num_heads, count_padding=True)
    if hasattr(indexer, "index_kpool"):  # GLM-5-Next.
        tail = indexer.index_kpool_always_select_tail
        return IndexerBlocks(indexer.index_kpool, takes_tail=tail)
    if hasattr(indexer, "compress_ratio"):  # Qwen4.
        return IndexerBlocks(indexer.compress_ratio)
    if hasattr(indexer, "compress_rate"):  # DeepSeek-V4.
        return IndexerBlocks(indexer.compress_rate, count_padding=True, as_summaries=True)
    return None


def _config_of(model: nn.Module, name: str) -> Any:
    configs = (getattr(module, "config", None) for module in _enclosing(model, name))
    return next((config for config in configs if config is not None), None)


def _first_size(names: Sequence[str], *sources: Any) -> int | None:
    values = (getattr(source, name, None) for source in sources for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _owner_of(model: nn.Module, name: str, attribute: str) -> Any:
    """Return the module at path `name`, or the innermost module around it, that has `attribute`.

    Return None if none of these modules has the attribute.
    """
    return next((module for module in _enclosing(model, name) if hasattr(module, attribute)), None)


def _enclosing(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """Yield the module at path `name` and all modules that contain it, the innermost first."""
    while name:
        yield model.get_submodule(name)
        name = name.rpartition(".")[0]
    yield model


def tower_of(model: nn.Module, name: str) -> Any:
    """Return the encoder with a merge size around the module at path `name`, or None."""
    return _owner_of(model, name, MERGE_SIZE)


def merging_layer(model: nn.Module, name: str) -> int:
    """Return the number of the layer after which two by two patches become one token (MiniCPM-V).

    `name` is the path of a module of the encoder. Return -1 if the encoder does not merge patches.
    """
    return int(getattr(_config_of(model, name), "insert_layer_id", -1))


def shifted_windows(model: nn.Module, name: str) -> tuple[Any, tuple[int, int]]:
    """Return the window size and the shift of an attention module with windows (Swin, SAM).

    `name` is the path of the module. The size and the shift are in patches. The window size is
    (rows, columns), one number for both, or None if it is not known. The shift is (rows, columns),
    and (0, 0) if the windows are not shifted.
    """
    # The size and the shift are attributes of the attention module or of a module around it. If no
    # module has a shift, the windows are not shifted (SAM).
    owner = _owner_of(model, name, "shift_size") or _owner_of(model, name, "window_size")
    shift = getattr(owner, "shift_size", 0)
    # timm has separate shifts for rows and columns.
    rows, columns = shift if isinstance(shift, tuple | list) else (shift, shift)
    return getattr(owner, "window_size", None), (int(rows), int(columns))


def window_order(tower: Any, grid: torch.Tensor, size: int) -> torch.Tensor | None:
    """Return the order in which an image encoder with windows processes its patches.

    Encoders such as Qwen2.5-VL's keep blocks of `size` x `size` patches together, and sort the
    blocks window by window. The result, (blocks,), has the index of each block in this order. An
    index counts the blocks of all images, image by image and row by row.

    `tower` is the encoder, or None. `grid` has the numbers of patches of each image along time,
    height and width. Return None if the encoder has no windows, or if their order is not known.
    """
    window = getattr(getattr(tower, "config", None), "window_size", None)
    if tower is None or not window:
        return None
    get_index = getattr(tower, "get_window_index", None)
    if get_index is not None:
        return torch.as_tensor(get_index(grid)[0]).cpu()
    try:
        from transformers.vision_utils import get_vision_window_index
    except ImportError:
        return None
    patch = int(tower.config.patch_size)
    return torch.as_tensor(get_vision_window_index(grid, size, int(window), patch)[0]).cpu()


def is_compiled(modules: Sequence[nn.Module]) -> bool:
    """Whether any of `modules`, or one of their ``forward`` methods, is compiled by torch."""
    mark, kinds = "_torchdynamo_orig_callable", {type(module) for module in modules}
    return any(
        # Compare the name of the class, because importing this class of torch takes seconds.
        kind.__name__ == "OptimizedModule" or hasattr(kind.forward, mark)
        for kind in kinds
    ) or any(
        module._compiled_call_impl is not None
        or ("forward" in module.__dict__ and hasattr(module.forward, mark))
        for module in modules
    )


# Types of rotary position embeddings whose frequencies depend on the longest text of a batch.
_ROPES_OF_LENGTH = ("dynamic", "longrope")


def max_batched_length(config: PreTrainedConfig) -> float:
    """Return the maximum number of tokens of a text that may run in a batch with other texts.

    Longer texts must run alone, because their attention would depend on the other texts. The result
    is infinity for most models. It is 0 for a mixture of experts in which an expert takes only a
    limited number of tokens of the whole batch. If the frequencies of rotary position embeddings
    change for texts above a certain length, the result is this length. BigBird and Reformer divide
    texts above a certain length into chunks that depend on the padding. Their result is this
    length.
    """
    text: Any = config.get_text_config()
    if getattr(text, "expert_capacity", None) is not None:
        return 0.0
    bound = math.inf
    if getattr(text, "attention_type", None) == "block_sparse":
        bound = float((5 + 2 * text.num_random_blocks) * text.block_size)
    elif hasattr(text, "lsh_attn_chunk_length"):
        bound = float(min(text.lsh_attn_chunk_length or 0, text.local_attn_chunk_length or 0))
    ropes = getattr(text, "rope_parameters", None) or {}
    for rope in (ropes, *(rope for rope in ropes.values() if isinstance(rope, dict))):
        if rope.get("rope_type") in _ROPES_OF_LENGTH:
            original_length = rope.get("original_max_position_embeddings")
            bound = min(
                bound, float(original_length or getattr(text, "max_position_embeddings", 0) or 0)
            )
    return bound
