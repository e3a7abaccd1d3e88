"""Unusual settings: settings of configurations that change attention, with values to check.

The names of the settings were collected from all configurations of transformers. A flag is a group
of settings that are changed together. It has the new value of each setting, or a function that
computes this value from the configuration. The function returns `_LEAVE` if the setting must not be
changed. A part is a configuration in another configuration, such as `text_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

_LEAVE = object()

_SLIDING, _FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Flag:
    """Settings that are changed together.

    Attributes
    ----------
    settings : dict
        New value of each setting, or a function that computes it. The flag is used only for
        configurations in which the first setting exists and has another value. The other settings
        are changed if they exist.
    inputs : dict
        Additional arguments of the model, written as in `overrides`.
    masks : bool
        Whether the flag changes masks. A complete model may make the masks of its parts, so such a
        flag is set in all parts. Other flags are not set in parts that are model types themselves,
        because these model types are checked separately.
    """

    settings: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    masks: bool = False


def _other_way(name: str) -> Callable[[PretrainedConfig], Any]:
    """Return a function that returns the opposite of the boolean setting `name`.

    If the value of the setting is not a boolean, the function leaves the setting unchanged.
    """

    def setting(config: PretrainedConfig) -> Any:
        now = vars(config)[name]
        return not now if isinstance(now, bool) else _LEAVE

    return setting


def _swapped_layers(config: PretrainedConfig) -> Any:
    """Return `layer_types` after swapping sliding-window attention and full attention.

    If only one of the two kinds occurs, change only every second layer to the other kind. If
    neither occurs, leave the setting unchanged.
    """
    now: Sequence[str] = config.layer_types or ()
    other = {_SLIDING: _FULL, _FULL: _SLIDING}
    kinds = other.keys() & set(now)
    if not kinds:
        return _LEAVE
    step = 1 if len(kinds) == 2 else 2
    return [other.get(kind, kind) if n % step == 0 else kind for n, kind in enumerate(now)]


def _layers_all(kind: str) -> Callable[[PretrainedConfig], Any]:
    """Return a function that returns `layer_types` with the entry `kind` for all layers.

    If `layer_types` is empty, or if a layer has neither sliding-window nor full attention, the
    function leaves the setting unchanged.
    """

    def setting(config: PretrainedConfig) -> Any:
        now: Sequence[str] = config.layer_types or ()
        return [kind] * len(now) if now and set(now) <= {_SLIDING, _FULL} else _LEAVE

    return setting


def _decoder(config: PretrainedConfig) -> Any:
    """Return True, for settings that turn an encoder into a decoder, such as `is_decoder`.

    Leave the setting of encoder-decoder models unchanged.
    """
    return _LEAVE if config.is_encoder_decoder else True


def _one_key_head(config: PretrainedConfig) -> Any:
    """Return 1, so that all heads share one key head.

    Leave the setting unchanged in a model with latent attention, which needs as many key heads as
    heads.
    """
    return _LEAVE if "kv_lora_rank" in vars(config) else 1


def _kind_of_attention(config: PretrainedConfig) -> Any:
    """Return another value for `attention_type`, for example "full" if the value is "prob".

    Leave values that are not in the table unchanged.
    """
    others = {
        "block_sparse": "original_full",
        "relative_shift": "factorized",
        "prob": "full",
        "divided_space_time": "joint_space_time",
    }
    return others.get(config.attention_type, _LEAVE)


# Names of boolean settings. Each gets the opposite of its value.
_BOOLEANS = """
    alibi attention_bias attention_k_eq_v attention_out_bias attention_softmax_in_fp32
    attn_temperature_tuning causal channel_attention do_stable_layer_norm gated_attn
    has_relative_attention_bias has_spatial_attention_bias key_bias key_query_shared_bottleneck
    linear_attention multi_query new_decoder_architecture norm_after parallel_attn pool_q_only
    position_biased_input prefix_lm qk_layer_norms qk_layernorm qk_ln query_bias qkv_bias qv_bias
    relative_attention reorder_and_upcast_attn rope_interleave rotary_value same_length
    scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights separate_cls
    share_att_key share_cross_modal_transformer_layers share_link_tower_layers slow_but_exact
    stagger_local_blocks truncate_seq use_attention_bias use_attention_gate use_bias
    use_bottleneck_attention use_entity_aware_attention use_mem_rope use_parallel_residual
    use_prompt use_qk_norm use_qkv_bias use_query_residual use_rel_pos use_relative_position_bias
    use_relative_position_embeddings use_resampler use_rotary_embedding
    use_shared_attention_adapter use_shared_relative_position_bias value_bias
""".split()

_SHORT_WINDOW = {"sliding_window": 5, "use_sliding_window": True}

FLAGS: tuple[Flag, ...] = (
    *(Flag({name: _other_way(name)}) for name in _BOOLEANS),
    # The following flags change which keys a query may attend to: later tokens, keys in a window or
    # block, or tokens of an encoder.
    Flag({"is_decoder": _decoder}),
    Flag(
        {"add_cross_attention": _decoder, "is_decoder": True},
        {"encoder_hidden_states": ("normal", 1, 11, 64)},
    ),
    Flag({"use_bidirectional_attention": True}, masks=True),
    Flag({"use_bidirectional_attention": False}, masks=True),
    Flag({"use_bidirectional_attention": "all"}, masks=True),
    Flag({"use_bidirectional_attention": "vision"}, masks=True),
    Flag({"layer_types": _swapped_layers, **_SHORT_WINDOW}, masks=True),
    Flag({"layer_types": _layers_all(_FULL)}),
    Flag({"layer_types": _layers_all(_SLIDING), **_SHORT_WINDOW}),
    Flag({"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}),
    Flag({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    Flag({"attention_chunk_size": 5}, masks=True),
    Flag({"no_rope_layers": lambda config: [0] * len(config.no_rope_layers)}),
    Flag({"local_attention": 6}),
    Flag({"global_attn_every_n_layers": 2}),
    Flag({"local_radius": 3, "global_block_size": 4}),
    Flag({"block_size": 1, "num_random_blocks": 1}),
    Flag({"encoder_attention_type": "transient-global", "global_block_size": 4}),
    Flag({"attention_type": _kind_of_attention}),
    Flag({"attn_type": "uni"}),
    # The following flags change which layers share parameters, keys or values, or the numbers of
    # heads and key heads.
    Flag(
        {
            "num_kv_shared_layers": 2,
            "num_hidden_layers": 6,
            "layer_types": [_SLIDING, _SLIDING, _FULL] * 2,
        },
        masks=True,
    ),
    Flag({"num_kv_shared_layers": 0}),
    Flag({"num_key_value_heads": _one_key_head}),
    Flag({"num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 2}),
    Flag({"num_attention_groups": 1}),
    Flag({"multi_query_group_num": 1}),
    Flag({"decoder_num_key_value_heads": 1, "encoder_num_key_value_heads": 1}),
    Flag({"cross_num_key_value_heads": 1}),
    Flag({"num_hidden_groups": 2}),
    Flag({"inner_group_num": 2}),
    Flag({"head_ratio": 1}),
    # The following flags change logits, for example by their scale, soft cap, norms or positions.
    Flag({"attn_logit_softcapping": 5.0}),
    Flag({"attn_logit_softcapping": None}),
    Flag({"attention_multiplier": 0.5}),
    Flag({"query_pre_attn_scalar": 4}),
    Flag({"softmax_scale": 0.4}),
    Flag({"clip_qkv": 1.0}),
    Flag({"pad_head_dim_to_multiple_of": 24}),
    Flag({"position_embedding_type": "absolute"}),
    Flag({"position_embedding_type": "rotary"}),
    Flag({"position_embeddings_type": "relative"}),
    Flag({"position_embeddings_type": "relative_key"}),
    Flag({"position_embeddings_type": "rotary"}),
    Flag({"position_embeddings_type": None}),
    Flag({"pos_att_type": ["p2c", "c2p"], "relative_attention": True}),
    Flag({"pos_att_type": ["c2p"], "relative_attention": True, "share_att_key": True}),
    Flag({"qk_norm_type": "olmo"}),
    Flag({"cross_attention_shape_for_attention": "q"}),
)


def settings_of(config: PretrainedConfig, flag: Flag) -> dict[str, Any]:
    """Return the new values of the settings that a flag changes in a configuration.

    Changed settings of a part are a dict under the name of the part. Return {} if the flag changes
    nothing.
    """
    first = next(iter(flag.settings))
    settings: dict[str, Any] = {}
    value = _value_of(config, flag.settings[first]) if first in vars(config) else _LEAVE
    if value is not _LEAVE and value != vars(config)[first]:
        settings = {
            name: _value_of(config, setting)
            for name, setting in flag.settings.items()
            if name in vars(config)
        }
    for name, part in _parts(config):
        alone = type(part).model_type in CONFIG_MAPPING
        if (flag.masks or not alone) and (inner := settings_of(part, flag)):
            settings[name] = inner
    return settings


def _value_of(config: PretrainedConfig, value: Any) -> Any:
    return value(config) if callable(value) else value


def _parts(config: PretrainedConfig) -> Iterator[tuple[str, PretrainedConfig]]:
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig) and not name.startswith("_"):
            yield name, value
