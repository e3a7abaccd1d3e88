"""Values of settings with which the configuration of any model type becomes tiny.

The tables have the names of the settings. A setting that is not in these tables keeps its default,
except a few that `model_types.shrink` changes, such as ids of special tokens, and lists with an
entry for each layer.
"""

from __future__ import annotations

from typing import Any

VOCABULARY = 220

_WIDTH = dict.fromkeys(
    """
    adapter_out_dim attention_hidden_size backbone_hidden_size bbox_embed_dim cross_hidden_size
    d_model decoder_hidden_dim decoder_hidden_size decoder_input_dim decoder_output_dim dim emb_dim
    embed_dim embedding_size encoder_hidden_dim encoder_hidden_size entity_emb_size fpn_hidden_size
    hidden_size hidden_dim hidden_size_global image_text_hidden_size n_embd out_hidden_size
    output_hidden_size pooler_hidden_size pooler_output_size project_dim projection_dim
    projection_hidden_dim projection_hidden_size projection_size projector_hidden_size
    projector_input_dim projector_output_dim text_hidden_size word_embed_proj_dim
    vision_embed_dim vit_dim backbone_dim audio_hidden_size memory_attention_hidden_size
    mask_feature_size feature_size_of_decoder
    """.split(),
    64,
)
_INNER = dict.fromkeys(
    """
    d_ff d_inner decoder_ffn_dim decoder_intermediate_size decoder_linear_units
    dense_intermediate_size dim_feedforward dim_ff dff encoder_feedforward_dim encoder_ffn_dim
    encoder_linear_units expert_ffn_hidden_size ffn_dim ffn_hidden_size intermediate_size
    intermediate_size_mlp mit_intermediate_size mlp_dim moe_intermediate_size n_inner
    alignment_intermediate_size
    moe_shared_expert_intermediate_size pair_intermediate_size projection_intermediate_dim
    projection_intermediate_size share_expert_dim shared_expert_intermediate_size
    shared_experts_intermediate_size shared_intermediate_size speech_encoder_intermediate_size
    t2u_decoder_ffn_dim t2u_encoder_ffn_dim memory_attention_feed_forward_hidden_size
    memory_attention_mlp_hidden_size memory_fuser_intermediate_dim classifier_proj_size
    moe_hidden_size
    """.split(),
    48,
)
_HEADS = dict.fromkeys(
    """
    attention_heads conf_num_attention_heads cross_num_attention_heads decoder_attention_heads
    decoder_cross_attention_heads decoder_num_attention_heads decoder_self_attention_heads
    encoder_attention_heads mit_num_attention_heads n_head n_heads num_attention_heads
    num_decoder_attention_heads num_encoder_attention_heads num_heads num_sliding_attention_heads
    resampler_heads resampler_n_heads speech_encoder_attention_heads swa_num_attention_heads
    t2u_decoder_attention_heads t2u_encoder_attention_heads
    """.split(),
    4,
)
_KEY_HEADS = dict.fromkeys(
    """
    cross_num_key_value_heads num_key_value_heads num_kv_heads swa_num_key_value_heads
    num_attention_groups multi_query_group_num decoder_num_key_value_heads
    encoder_num_key_value_heads
    """.split(),
    2,
)
_HEAD_WIDTH = dict.fromkeys(
    """
    attention_head_dim attention_key_size cross_head_dim d_head d_kv dim_head head_dim kv_channels
    linear_head_dim linear_key_head_dim linear_value_head_dim resampler_dim_head
    resampler_head_dim swa_head_dim v_head_dim swa_v_head_dim
    """.split(),
    16,
)

# Settings that are numbers of layers. Each becomes at most 2. The number of all layers can be
# larger if the model has several kinds of layers, because the first two layers of each kind are
# kept. Models with stages keep these settings, because `STAGE_DEPTHS` limits their layers.
LAYER_COUNTS = frozenset(
    """
    conf_num_hidden_layers decoder_layers decoder_num_hidden_layers depth encoder_layers
    encoder_num_hidden_layers layers memory_attention_num_layers n_layer n_layers
    num_attention_layers num_decoder_layers num_encoder_layers num_hidden_layers num_layers
    num_spatial_layers num_temporal_layers resampler_depth speech_encoder_layers
    t2u_decoder_layers t2u_encoder_layers folding_trunk_num_hidden_layers num_blocks
    mit_num_hidden_layers num_layers_per_stack perceiver_num_layers num_self_attends_per_block
    """.split()
)

# Settings that list some layers by their numbers, such as the layers with global attention. The
# list becomes [1].
LAYER_LISTS = frozenset(
    """
    attn_layer_indices cross_attention_layers deepstack_visual_indexes full_attn_idxs
    fullatt_block_indexes global_attention_blocks global_attn_indexes intermediate_layers_indices
    moe_layers out_indices window_block_indexes window_block_indices
    """.split()
)

_LENGTHS: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "max_position_embeddings": 96,
    "n_positions": 96,
    "n_ctx": 96,
    "max_seq_len": 96,
    "max_source_positions": 24,
    "max_target_positions": 96,
    "num_frames": 4,
    "sliding_window": 5,
    "sliding_window_size": 5,
    "local_attention": 8,
    "num_position_embeddings": 64,
    "num_query_tokens": 5,
    "num_queries": 9,
    "num_object_queries": 9,
    "mm_tokens_per_image": 4,
    "image_seq_length": 16,
    "num_latents": 6,
    "resampler_num_latents": 6,
    "resampler_n_latents": 6,
    "latent_query_num": 6,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "max_encoder_position_embeddings": 96,
    "max_decoder_position_embeddings": 96,
    "max_2d_position_embeddings": 128,
}

_EXPERTS = dict.fromkeys(
    """
    moe_num_experts n_routed_experts num_experts num_local_experts num_routed_experts
    """.split(),
    4,
) | dict.fromkeys(
    """
    moe_k moe_topk moe_top_k num_experts_per_tok num_experts_per_token top_k_experts
    """.split(),
    2,
)

_OTHER: dict[str, Any] = {
    "zero_expert_num": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_expert_group": 1,
    "first_k_dense_replace": 1,
    # Multi-head latent attention, and the indexer that selects keys for it.
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "o_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "index_head_dim": 32,
    "index_n_heads": 4,
    "index_topk": 8,
    "index_kpool": 2,
    # State-space layers and linear attention.
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_num_heads": 4,
    "mamba_d_state": 8,
    "mamba_d_head": 16,
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "mamba_chunk_size": 8,
    "mamba_d_ssm": 128,
    "mamba_dt_rank": 4,
    "time_step_rank": 4,
    "ssm_state_size": 8,
    "state_size": 8,
    "chunk_size": 8,
    # Vocabularies and codebooks.
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    "input_vocab_size": VOCABULARY,
    "output_vocab_size": VOCABULARY,
    "src_vocab_size": VOCABULARY,
    "tgt_vocab_size": VOCABULARY,
    "entity_vocab_size": 50,
    "text_vocab_size": VOCABULARY,
    "audio_vocab_size": 64,
    "codebook_size": 64,
    "char_vocab_size": 64,
    "t2u_vocab_size": VOCABULARY,
    "unit_hifi_gan_vocab_size": 64,
    "num_embeddings": 64,
    # Convolutions and other settings.
    "sampling_rate": 16000,
    "fusion_hidden_size": 16,
    "num_conv_pos_embedding_groups": 4,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "tdnn_dim": (16, 16, 16, 16, 48),
    "xvector_output_dim": 16,
    "query_pre_attn_scalar": 16,
    "rotary_dim": 8,
    "num_codebooks": 3,
    "two_stage_num_proposals": 9,
}

SIZES: dict[str, Any] = {
    **_WIDTH,
    **_INNER,
    **_HEADS,
    **_KEY_HEADS,
    **_HEAD_WIDTH,
    **_LENGTHS,
    **_EXPERTS,
    **_OTHER,
}

# Values of settings whose default is None, although models need a value.
FILLED: dict[str, Any] = {
    "head_dim": 16,
    "image_token_id": 10,
    "image_token_index": 10,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "top_k_experts": 2,
}

# Settings that list the number of layers of each stage of a model. Each number becomes at most 2.
STAGE_DEPTHS = frozenset({"blocks_per_stage", "depths", "num_block_repeats"})

# Settings that keep their default if it is smaller than the value in `SIZES`.
UPPER_BOUNDS = frozenset(
    {
        "index_topk",
        "num_frames",
        "num_queries",
        "patch_size",
        "spatial_merge_size",
        "temporal_patch_size",
        *_EXPERTS,
    }
)

# Ids of special tokens. Other tokens of texts have larger ids.
SPECIAL_IDS: dict[str, int] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
    "unk_token_id": 3,
    "sep_token_id": 4,
    "cls_token_id": 5,
    "mask_token_id": 6,
}
