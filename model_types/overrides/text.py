"""Overrides for tiny models of text, time series and proteins (see `model_types.overrides`)."""

from __future__ import annotations

from typing import Any

_EQUAL_HEADS = {"config": {"num_key_value_heads": 4}}
_HYBRID = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
_SERIES = {
    "config": {
        "prediction_length": 4,
        "context_length": 8,
        "label_length": 2,
        "num_time_features": 1,
        "lags_sequence": [1, 2, 3],
        "d_model": 64,
    },
    "inputs": {
        "past_values": ("normal", 1, 11),
        "past_time_features": ("normal", 1, 11, 1),
        "past_observed_mask": ("ones", 1, 11),
        "future_values": ("normal", 1, 4),
        "future_time_features": ("normal", 1, 4, 1),
    },
}
TEXT: dict[str, dict[str, Any]] = {
    "autoformer": _SERIES,
    "informer": _SERIES,
    "time_series_transformer": _SERIES,
    "bamba": {"config": {"num_hidden_layers": 4, "attn_layer_indices": [1, 3]}},
    "blt": {"config": {"encoder_hash_byte_group_vocab": 50, "vocab_size": 260}},
    "cohere_compass_text": {
        "config": {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                name: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
                for name in ("sliding_attention", "full_attention")
            },
        }
    },
    # The model adds the tokens of a prompt to the text. A record has the weights of these tokens.
    # The model cuts them from the weights that it returns, so the two cannot be compared.
    "cpmant": {"left_out": ("attentions",)},
    "dbrx": {
        "config": {
            "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
            "num_key_value_heads": 2,
        }
    },
    "decision_transformer": {
        "inputs": {
            "states": ("normal", 1, 5, 17),
            "actions": ("normal", 1, 5, 4),
            "rewards": ("normal", 1, 5, 1),
            "returns_to_go": ("normal", 1, 5, 1),
            "timesteps": ("exactly", [[0, 1, 2, 3, 4]]),
            "attention_mask": ("ones", 1, 5),
        }
    },
    "deepseek_ocr2_text": {
        "config": {
            "mlp_layer_types": ["dense", "sparse"],
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
        }
    },
    "dots1": {
        "config": {
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "num_experts_per_tok": 2,
        }
    },
    # Layers 1 and 2 run twice.
    "dory": {
        "config": {
            "num_hidden_layers": 4,
            "n_input_layers": 1,
            "n_recurrent_layers": 2,
            "n_output_layers": 1,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        }
    },
    "esm": {"config": {"vocab_size": 220, "pad_token_id": 0, "mask_token_id": 6}},
    "esmc": _EQUAL_HEADS,
    "gemma3n_text": {
        "config": {
            "num_hidden_layers": 6,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
            "intermediate_size": 48,
            "activation_sparsity_pattern": None,
        }
    },
    # The soft cap (a bound on logits) is low, so that it changes the small logits of a tiny model.
    "gemma2": {"config": {"attn_logit_softcapping": 3.0}},
    "t5gemma": {
        "config": {
            "encoder": {"attn_logit_softcapping": 5.0},
            "decoder": {"attn_logit_softcapping": 5.0},
        }
    },
    "t5": {"heads": {"T5ForSequenceClassification": {"config": {"decoder_start_token_id": 0}}}},
    "vaultgemma": {"config": {"attn_logit_softcapping": 3.0}},
    "glm5_next_text": {"config": {"qk_rope_head_dim": 0, "head_dim": 0}},
    "gpt_neo": {
        "config": {
            "attention_types": [[["global", "local"], 2]],
            "num_layers": 4,
            "window_size": 5,
        }
    },
    "granitemoehybrid": {"config": {**_HYBRID, "num_local_experts": 4}},
    "hrm_text": {"config": {"num_hidden_layers": 2, "num_layers_per_stack": None}},
    # Layers 2 and 3 run three times.
    "inkling2_loop_text": {
        "config": {
            "num_hidden_layers": 6,
            "layer_types": ["hybrid_sliding", "hybrid"] * 3,
            "n_layers_per_attn_res_block": 2,
            "loop_layer_index_start": 2,
            "loop_layer_index_end": 4,
        }
    },
    "jamba": {
        "config": {
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "use_mamba_kernels": False,
        }
    },
    "layoutlmv3": {
        "config": {"coordinate_size": 11, "shape_size": 10, "input_size": 32, "patch_size": 8}
    },
    "led": {"config": {"attention_window": 4, "max_encoder_position_embeddings": 96}},
    "longformer": {
        "config": {"attention_window": 4},
        # `LongformerForQuestionAnswering` requires three separators (id 4). The text before the
        # first separator is the question.
        "heads": {
            "LongformerForQuestionAnswering": {
                "inputs": {
                    "input_ids": (
                        "exactly",
                        [[5, 71, 72, 73, 4, 4, 74, 75, 76, 77, 78, 79, 80, 4]],
                    )
                }
            }
        },
    },
    # The default radius of 127 is longer than the text.
    "longt5": {"config": {"local_radius": 3}},
    "lfm2_moe": {
        "config": {
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "num_hidden_layers": 4,
        }
    },
    "lilt": {"config": {"hidden_size": 96, "num_attention_heads": 4}},
    "lxmert": {
        "config": {"visual_feat_dim": 20},
        "inputs": {"visual_feats": ("normal", 1, 6, 20), "visual_pos": ("normal", 1, 6, 4)},
    },
    "mamba2": {"config": {"num_heads": 8, "head_dim": 16}},
    "nemotron": {"config": {"num_key_value_heads": 2}},
    "patchtst": {
        "config": {"patch_length": 2, "patch_stride": 2, "context_length": 32},
        "inputs": {"past_values": ("normal", 1, 32, 1)},
    },
    "patchtsmixer": {
        "config": {"self_attn": True, "self_attn_heads": 4, "d_model": 32},
        "inputs": {"past_values": ("normal", 1, 32, 1)},
    },
    "qwen4_exp_text": {
        "config": {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "indexed_attention"] * 2,
            "indexer_n_heads": 2,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 16,
            "indexer_budget": 8,
            "indexer_compress_ratio": 2,
            "ngram_vocab_size_base": 200,
            "split_ngram_parts": 2,
            "hc_lowrank": 8,
        }
    },
    "reformer": {
        "config": {
            "attn_layers": ["local", "lsh", "local", "lsh"],
            "axial_pos_embds_dim": [32, 32],
            "axial_pos_shape": [4, 4],
            "attention_head_size": 16,
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_buckets": 2,
            "hash_seed": 0,
        },
        "inputs": {"input_ids": ("ids", 1, 16), "attention_mask": None},
        "heads": {"ReformerModelWithLMHead": {"config": {"is_decoder": True}}},
    },
    "step3p5": {"config": {"sliding_window": 5}},
    "t5gemma2_text": {"config": {"dropout_rate": 0.0}},
    "t5gemma2_decoder": {
        "config": {"dropout_rate": 0.0},
        "inputs": {"encoder_hidden_states": ("normal", 1, 11, 64)},
    },
    "timesfm": {
        "config": {"context_length": 64, "patch_length": 8, "horizon_length": 8},
        "inputs": {
            "past_values": ("normal", 1, 64),
            "past_values_padding": ("zeros", 1, 64),
            "freq": ("exactly", [[0]]),
        },
    },
    "timesfm2_5": {
        "config": {"context_length": 64, "patch_length": 8},
        "inputs": {"past_values": ("normal", 1, 64)},
    },
    "xmod": {"config": {"default_language": "en_XX"}},
    "zamba": {
        "config": {
            "attention_hidden_size": 128,
            "attention_head_dim": 32,
            "num_key_value_heads": 4,
        }
    },
    "unlimited_ocr_text": _EQUAL_HEADS,
    "zaya": {"config": {"num_experts_per_tok": 1}},
}
