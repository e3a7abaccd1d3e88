"""Overrides for tiny models of text with images or sound (see `model_types.overrides`).

Many image and sound encoders of these models are model types themselves, such as
"mllama_vision_model". Such a type has its own entry.
"""

from __future__ import annotations

from typing import Any

from model_types.overrides.vision import SWIN_FOUR

# Vocabulary of Chameleon: ids of the token that stands for an image, and of the words for image
# codes. The model encodes an image as a sequence of these codes.
_CODES = {
    "<image>": 10,
    **{f"IMGIMG{chr(65 + code // 10)}{chr(65 + code % 10)}Z": 20 + code for code in range(64)},
}
_SMALL_VQ: dict[str, Any] = {
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "hidden_size": 32,
    "latent_channels": 4,
    "codebook_size": 64,
    "embed_dim": 4,
}
_MROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
_GROUNDING: dict[str, Any] = {
    "config": {
        "backbone_config": {
            "model_type": "swin",
            **SWIN_FOUR,
            "out_features": ["stage2", "stage3", "stage4"],
        },
    },
    "inputs": {"pixel_values": ("normal", 1, 3, 64, 64)},
    "left_out": ("encoder_attentions", "decoder_attentions"),
}
_MINICPM: dict[str, Any] = {
    "config": {"insert_layer_id": 0},
    "inputs": {"pixel_values": ("normal", 1, 3, 8, 128), "target_sizes": ("exactly", [[4, 4]])},
}
_MINICPM_TEXT: dict[str, Any] = {"inputs": _MINICPM["inputs"]}
# The image is divided into a single tile. The model gets both the whole image and this tile.
_TILES: dict[str, Any] = {
    "config": {"image_grid_pinpoints": [[32, 32], [64, 32]]},
    "inputs": {
        "pixel_values": ("normal", 1, 2, 3, 32, 32),
        "image_sizes": ("exactly", [[32, 32]]),
    },
}
# Perceiver's classes for text take the text as the argument `inputs`.
_WORDS = {"inputs": {"inputs": ("ids", 1, 14), "input_ids": None}}
# For model types that are tested only as parts of another model. Most of them need the results of
# other parts of that model as inputs.
_PART = {"skip": "a part of another model, which is tested"}

BOTH: dict[str, dict[str, Any]] = {
    "align": {
        "config": {
            "projection_dim": 80,
            "vision_config": {
                "hidden_dim": 80,
                "num_block_repeats": [1, 1, 1, 1, 1, 1, 1],
                "width_coefficient": 0.25,
                "depth_coefficient": 1.0,
                "image_size": 64,
            },
        }
    },
    "blip_2_qformer": {
        "inputs": {
            "query_embeds": ("normal", 1, 6, 64),
            "encoder_hidden_states": ("normal", 1, 11, 64),
            "input_ids": None,
            "attention_mask": None,
        }
    },
    "instructblip_qformer": {
        "inputs": {
            "query_embeds": ("normal", 1, 6, 64),
            "encoder_hidden_states": ("normal", 1, 11, 64),
            # A mask would cover the `query_embeds` and the text.
            "attention_mask": None,
        }
    },
    "bridgetower_vision_model": {"inputs": {"image": ("normal", 1, 3, 32, 32)}},
    "chameleon": {"config": {"vocabulary_map": _CODES, "vq_config": {"base_channels": 32}}},
    "aria": {"config": {"projector_patch_to_query_dict": {16: 4}}},
    "cohere_compass": {"config": {"vision_config": {"deepstack_visual_indexes": [1]}}},
    "deepseek_ocr2": {"inputs": {"pixel_values": None}},
    "deepseek_ocr2_vision": {"skip": "its image towers require images of 1024 by 1024 pixels"},
    "inkling_vision": {"skip": "its patches of 40 pixels make it too large for a tiny model"},
    "inkling_mm_model": {"skip": "its patches of 40 pixels make it too large for a tiny model"},
    "deepseek_ocr2_encoder": {
        "inputs": {"inputs_embeds": ("normal", 1, 144, 64), "num_patches": 144}
    },
    "dots3_note_text": {
        "config": {
            "num_hidden_layers": 4,
            "layer_types": ["indexed_attention", "sliding_attention"] * 2,
            "num_key_value_heads": 4,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 4,
            "swa_q_lora_rank": 32,
            "swa_kv_lora_rank": 32,
            "swa_head_dim": 24,
            "swa_qk_nope_head_dim": 16,
            "swa_qk_rope_head_dim": 8,
            "swa_v_head_dim": 16,
        }
    },
    "dots3_note_vision_encoder": {"config": {"adapter_in_dim": 64}},
    "dots3_note_audio_encoder": {"config": {"adapter_input_size": 64}},
    "apertus1p5": {
        "config": {
            "image_token_offset": 60,
            "audio_token_offset": 124,
            "vision_config": {"codebook_size": 64, "base_channels": 32, "num_res_blocks": 1},
            "audio_config": {"codebook_size": 64},
        }
    },
    "florence2": {"inputs": {"pixel_values": ("normal", 1, 3, 64, 64)}},
    "grounding-dino": _GROUNDING,
    "mm-grounding-dino": _GROUNDING,
    "molmo2": {
        "config": {
            "adapter_config": {
                "vision_feature_layer": [1, 0],
                "text_hidden_size": 64,
                "num_key_value_heads": 4,
            },
            "text_config": {"rope_scaling_layers": [0]},
        },
        "inputs": {"pixel_values": None},
    },
    "kosmos_2_5_vision_model": _PART,
    "minicpm_ocr_vision": _MINICPM,
    "minicpmv4_6_vision": _MINICPM,
    "minicpmv4_7_vision": _MINICPM,
    "muse_glimmer_vision": {"inputs": {"pixel_values": ("normal", 16, 384)}},
    "muse_spark_vision": {"inputs": {"pixel_values": ("normal", 16, 384)}},
    "nemo_speechlm": {"skip": "its text model and its encoders are tested separately"},
    "unlimited_ocr": {"inputs": {"pixel_values": None}},
    "unlimited_ocr_vision_encoder": {
        "inputs": {
            "patch_embeds": ("normal", 1, 64, 4, 4),
            "pixel_values": ("normal", 1, 3, 32, 32),
        }
    },
    "clvp_encoder": {"config": {"use_rotary_embedding": False}},
    "sam3_detr_encoder": _PART,
    "sam3_lite_text_detr_encoder": _PART,
    "sam3_detr_decoder": _PART,
    "sam3_lite_text_detr_decoder": _PART,
    "sam3_mask_decoder": _PART,
    "sam3_lite_text_mask_decoder": _PART,
    "blt_local_decoder": _PART,
    "blt_local_encoder": _PART,
    "qwen3_omni_moe": {"skip": "its thinker, talker and encoders are tested separately"},
    "qwen2_5_omni": {"skip": "its thinker, talker and encoders are tested separately"},
    "muse_spark": {
        "config": {"audio_config": {"hidden_sizes": [16, 16, 16, 32], "out_hidden_size": 64}}
    },
    "emu3": {
        "config": {"vocabulary_map": _CODES, "vq_config": _SMALL_VQ},
        "inputs": {"image_sizes": ("exactly", [[32, 32]])},
    },
    "fun_asr_nano": {
        "config": {"adaptor_config": {"intermediate_size": 16}},
        "inputs": {
            "input_features": ("normal", 1, 20, 560),
            "input_features_mask": ("ones", 1, 20),
        },
    },
    # The image encoder is a model of the library timm. Its size cannot be set, so choose a small
    # model.
    "gemma3n": {
        "config": {"vision_config": {"architecture": "resnet10t"}},
        "inputs": {"pixel_values": None, "input_features": None, "input_features_mask": None},
    },
    "gemma4_vision": {
        "inputs": {
            "pixel_values": ("normal", 1, 36, 192),
            "pixel_position_ids": (
                "exactly",
                [[[column, row] for row in range(6) for column in range(6)]],
            ),
        }
    },
    "granite4_vision": {
        "config": {
            "downsample_rate": "1/2",
            "deepstack_layer_map": [[0, 0], [1, 1]],
            "spatial_target_layers": [0, 0, 1, 1],
            "image_grid_pinpoints": [[32, 32], [64, 32]],
        },
        "inputs": {
            "pixel_values": ("normal", 1, 2, 3, 32, 32),
            "image_sizes": ("exactly", [[32, 32]]),
        },
    },
    "hunyuan_vl": {"config": {"text_config": {"num_key_value_heads": 2}}},
    "idefics": {
        "inputs": {
            "pixel_values": ("normal", 1, 1, 3, 32, 32),
            "image_attention_mask": ("ones", 1, 14, 1),
        }
    },
    "idefics2_perceiver": {
        "inputs": {
            "context": ("normal", 1, 11, 64),
            "attention_mask": ("ones", 1, 11),
        }
    },
    "instructblip": {
        "config": {"image_token_index": 10},
        "inputs": {"qformer_input_ids": ("ids", 1, 6), "qformer_attention_mask": ("ones", 1, 6)},
    },
    "instructblipvideo": {
        "config": {"video_token_index": 11, "image_token_index": 11},
        "inputs": {
            "pixel_values": ("normal", 1, 4, 3, 32, 32),
            "qformer_input_ids": ("ids", 1, 6),
            "qformer_attention_mask": ("ones", 1, 6),
        },
    },
    "janus": {
        "config": {
            "vision_config": {"num_image_tokens": 16},
            "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "latent_channels": 32},
        }
    },
    "kimi_k25_vision": {"inputs": {"pixel_values": ("normal", 16, 3, 8, 8)}},
    "kosmos-2": {
        "inputs": {
            "image_embeds_position_mask": ("exactly", [[0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]),
        }
    },
    "colqwen2": {"inputs": {"pixel_values": ("normal", 1, 16, 384)}},
    "llama4_vision_model": {
        "config": {"vision_output_dim": 64, "projector_input_dim": 64, "intermediate_size": 256}
    },
    "llava_next": _TILES,
    "llava_next_video": _TILES,
    "llava_onevision": _TILES,
    "minicpm_ocr": _MINICPM_TEXT,
    "minicpmv4_6": _MINICPM_TEXT,
    "minicpmv4_7": _MINICPM_TEXT,
    "kimi_k25": {"inputs": {"pixel_values": ("normal", 16, 3, 8, 8)}},
    "qwen3_asr": {
        "config": {"audio_config": {"output_dim": 64, "downsample_hidden_size": 16}},
        "inputs": {
            "input_features": ("normal", 1, 128, 100),
            "input_features_mask": ("ones", 1, 100),
        },
    },
    "video_llama_3": {"inputs": {"image_merge_sizes": ("exactly", [2])}},
    "vipllava": {"config": {"vision_feature_layers": [-1, -2]}},
    "voxtral": {"config": {"audio_token_id": 10, "audio_config": {"intermediate_size": 256}}},
    "glmasr": {"config": {"audio_config": {"intermediate_size": 256}}},
    "mllama": {
        "config": {
            "text_config": {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]},
        },
        "inputs": {
            "pixel_values": ("normal", 1, 1, 2, 3, 32, 32),
            "aspect_ratio_ids": ("exactly", [[1]]),
            "aspect_ratio_mask": ("ones", 1, 1, 2),
            "cross_attention_mask": ("ones", 1, 14, 1, 2),
        },
    },
    "mllama_vision_model": {
        "config": {
            "num_global_layers": 2,
            "vision_output_dim": 128,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1], [1, 2]],
            "max_num_tiles": 2,
        },
        "inputs": {
            "pixel_values": ("normal", 1, 1, 2, 3, 32, 32),
            "aspect_ratio_ids": ("exactly", [[1]]),
            "aspect_ratio_mask": ("ones", 1, 1, 2),
        },
    },
    "molmo2_adapter": {
        "inputs": {
            "image_features": ("normal", 1, 1, 16, 128),
            "pooled_patches_idx": ("exactly", [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13]]]),
        }
    },
    "molmo2_vision": {
        "config": {"num_position_embeddings": 16},
        "inputs": {"pixel_values": ("normal", 1, 16, 192)},
    },
    "muse_glimmer_assistant": {
        "inputs": {
            "noise_embeds": ("normal", 1, 6, 64),
            "context_hidden_states": ("normal", 1, 9, 128),
        }
    },
    "paddleocr_vl": {"inputs": {"pixel_values": ("normal", 16, 3, 8, 8)}},
    "paddleocr_vl_text": {"config": {"rope_parameters": _MROPE}},
    "paddleocr_vl_vision": {"inputs": {"pixel_values": ("normal", 1, 16, 3, 8, 8)}},
    "perceiver": {
        "config": {
            "d_latents": 64,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        "inputs": {"inputs": ("normal", 1, 14, 64)},
        "heads": {"PerceiverForMaskedLM": _WORDS, "PerceiverForSequenceClassification": _WORDS},
    },
    "pix2struct": {
        "config": {"vision_config": {"patch_embed_hidden_size": 192, "seq_len": 32}},
        "inputs": {
            "flattened_patches": ("positions", 1, 12, 4, 194),
            "decoder_input_ids": ("ids", 1, 9),
            "decoder_attention_mask": None,
        },
    },
    "pix2struct_text_model": {"config": {"initializer_range": 0.02}},
    "pix2struct_vision_model": {
        "config": {"patch_embed_hidden_size": 192, "seq_len": 32},
        "inputs": {"flattened_patches": ("positions", 1, 12, 4, 194)},
    },
    "qwen2_5_omni_talker": {"config": {"rope_parameters": _MROPE}},
    "qwen2_5_omni_text": {"config": {"rope_parameters": _MROPE}},
    "qwen2_5_omni_thinker": {"config": {"vision_start_token_id": 40}},
    "qwen2_5_vl": {"config": {"text_config": {"rope_parameters": _MROPE}}},
    "qwen2_vl": {"config": {"text_config": {"rope_parameters": _MROPE}}},
    "qwen3_omni_moe_thinker": {"config": {"vision_start_token_id": 40}},
    "blip-2": {
        "config": {"image_token_index": 10, "use_decoder_only_language_model": True},
    },
    # The decoder computes one softmax over the tokens of encoder and decoder. The output has only
    # the weights on the tokens of the decoder, so the weights of the record cannot be compared.
    "t5gemma2": {"heads": {"T5Gemma2ForSequenceClassification": {"left_out": ("attentions",)}}},
    "tvp": {
        "config": {
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 16,
                "hidden_sizes": [16, 16, 32, 64],
                "depths": [1, 1, 1, 1],
            },
            "max_img_size": 64,
            "visual_prompt_size": 8,
            "num_frames": 2,
        },
        "inputs": {"pixel_values": ("normal", 1, 2, 3, 64, 64)},
    },
    "videoprism_text_model": {"config": {"attn_logit_softcapping": 3.0}},
    "video_llama_3_vision": {"inputs": {"merge_sizes": ("exactly", [2])}},
    "vision-encoder-decoder": {
        "inputs": {"decoder_input_ids": ("ids", 1, 9), "input_ids": None, "attention_mask": None}
    },
    "xclip": {
        "config": {"projection_dim": 64, "vision_config": {"mit_hidden_size": 64, "num_frames": 4}},
        "inputs": {"pixel_values": ("normal", 1, 4, 3, 32, 32)},
    },
    # The frames of a video are a batch of examples. The check supports only one example.
    "xclip_vision_model": _PART,
}
