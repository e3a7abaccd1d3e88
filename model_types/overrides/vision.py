"""Overrides for tiny models of images and videos (see `model_types.overrides`)."""

from __future__ import annotations

from typing import Any

_RESNET: dict[str, Any] = {
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [16, 16, 32, 32],
        "depths": [1, 1, 1, 1],
        "out_features": ["stage2", "stage3", "stage4"],
    },
}
_RESNET_LAST: dict[str, Any] = {
    "backbone_config": {**_RESNET["backbone_config"], "out_features": ["stage4"]},
}
# In the three stages, an image of 32 x 32 pixels has 16 x 16, 8 x 8 and 4 x 4 patches. The patches
# are divided into windows of 4 x 4.
_SWIN: dict[str, Any] = {
    "embed_dim": 32,
    "depths": [2, 2, 2],
    "num_heads": [2, 4, 8],
    "window_size": 4,
    "patch_size": 2,
}

# For models with a Swin encoder that need its stage 4. In the four stages, an image of 64 x 64
# pixels has 32 x 32, 16 x 16, 8 x 8 and 4 x 4 patches.
SWIN_FOUR: dict[str, Any] = {
    "image_size": 64,
    "embed_dim": 16,
    "depths": [2, 2, 2, 2],
    "num_heads": [1, 2, 4, 8],
    "window_size": 4,
    "patch_size": 2,
}
_STAGES = ["stage1", "stage2", "stage3", "stage4"]
_HGNET: dict[str, Any] = {
    "model_type": "hgnet_v2",
    "stem_channels": [3, 16, 16],
    "stage_in_channels": [16, 16, 32, 32],
    "stage_mid_channels": [16, 16, 16, 16],
    "stage_out_channels": [16, 32, 32, 64],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "hidden_sizes": [16, 32, 32, 64],
    "out_features": ["stage2", "stage3", "stage4"],
}
_DETECTION: dict[str, Any] = {
    "backbone_config": _HGNET,
    "encoder_in_channels": [32, 32, 64],
    "decoder_in_channels": [64, 64, 64],
}
_IMAGE_64 = {"pixel_values": ("normal", 1, 3, 64, 64)}
_IMAGE_96 = {"pixel_values": ("normal", 1, 3, 96, 96)}
_PYRAMID: dict[str, Any] = {
    "config": {"hidden_sizes": [16, 32, 40, 64], "num_attention_heads": [1, 2, 5, 8]},
    "inputs": _IMAGE_64,
}
_DINOV2_FOUR: dict[str, Any] = {
    "model_type": "dinov2",
    "num_hidden_layers": 4,
    "out_indices": [1, 2, 3, 4],
    "reshape_hidden_states": False,
}
_NECK: dict[str, Any] = {"neck_hidden_sizes": [16, 16, 16, 16], "reassemble_hidden_size": 64}
_SAM: dict[str, Any] = {
    "config": {
        "vision_config": {
            "image_size": 64,
            "output_channels": 64,
            "num_pos_feats": 32,
            "window_size": 4,
            "global_attn_indexes": [1],
        },
        "prompt_encoder_config": {"image_size": 64},
        "mask_decoder_config": {"iou_head_hidden_dim": 32},
    },
    "inputs": {
        "pixel_values": ("normal", 1, 3, 64, 64),
        "input_points": ("exactly", [[[[10.0, 12.0], [30.0, 40.0]]]]),
    },
}
_FLORENCE: dict[str, Any] = {
    "embed_dim": [16, 32, 64, 128],
    "num_heads": [1, 2, 4, 8],
    "num_groups": [1, 2, 4, 8],
    "depths": [1, 1, 2, 1],
    "patch_size": [7, 3, 3, 3],
    "window_size": 4,
    "projection_dim": 64,
}
_LW_DETR: dict[str, Any] = {
    "image_size": 64,
    "pretrain_image_size": 64,
    "patch_size": 8,
    "num_windows": 4,
    "num_hidden_layers": 4,
    "window_block_indices": [0, 2],
}
_HIERA_DET: dict[str, Any] = {
    "hidden_size": 16,
    "image_size": [64, 64],
    "patch_kernel_size": [3, 3],
    "patch_stride": [2, 2],
    "patch_padding": [1, 1],
    "blocks_per_stage": [1, 2, 2, 1],
    "embed_dim_per_stage": [16, 32, 64, 128],
    "num_attention_heads_per_stage": [1, 2, 4, 8],
    "window_size_per_stage": [8, 4, 4, 2],
    "global_attention_blocks": [4],
    "window_positional_embedding_background_size": [4, 4],
}

# Output fields with the weights of deformable attention. They are not compared, because deformable
# attention reads points between the patches of an image, and not keys. `_POINTS_TOO` is for models
# whose encoder also has deformable attention.
_POINTS = ("cross_attentions",)
_POINTS_TOO = ("cross_attentions", "encoder_attentions")

VISION: dict[str, dict[str, Any]] = {
    "chmv2": {
        "config": {
            "backbone_config": {
                "model_type": "dinov3_vit",
                "num_hidden_layers": 4,
                "out_indices": [1, 2, 3, 4],
                "return_class_token": True,
            },
            "post_process_channels": [16, 16, 16, 16],
            "number_output_channels": 16,
        }
    },
    "conditional_detr": {"config": _RESNET_LAST, "inputs": _IMAGE_96},
    "d_fine": {"config": _DETECTION, "inputs": _IMAGE_64, "left_out": _POINTS},
    "dab-detr": {"config": _RESNET_LAST, "inputs": _IMAGE_96},
    "deformable_detr": {"config": _RESNET, "inputs": _IMAGE_64, "left_out": _POINTS_TOO},
    "deimv2": {"config": _DETECTION, "inputs": _IMAGE_64, "left_out": _POINTS},
    "depth_anything": {"config": {"backbone_config": _DINOV2_FOUR, **_NECK}},
    "detr": {"config": _RESNET_LAST, "inputs": _IMAGE_96},
    "donut-swin": {"config": _SWIN},
    "efficientloftr": {
        "config": {
            # This setting is also the standard deviation of the initial scales (`weight`) of batch
            # norms. With the default of 0.02, all keys would be very similar. The attention would
            # have clear maxima only with logits of about 11,000.
            "initializer_range": 1.0,
            "stage_num_blocks": [1, 1, 1, 1],
            "out_features": [16, 16, 32, 64],
            "hidden_size": 64,
            "num_attention_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "head_dim": 8,
        },
        "inputs": {"pixel_values": ("normal", 1, 2, 1, 128, 128)},
    },
    "florence_vision": {
        "config": _FLORENCE,
        "inputs": {"hidden_states": ("normal", 1, 3, 64, 64), "pixel_values": None},
    },
    "glpn": _PYRAMID,
    "hiera": {
        "config": {
            "embed_dim": 16,
            "image_size": [64, 64],
            "depths": [1, 2, 2, 1],
            "num_heads": [1, 2, 4, 8],
            "patch_size": [3, 3],
            "patch_stride": [2, 2],
            "patch_padding": [1, 1],
        },
        "inputs": _IMAGE_64,
    },
    "levit": {
        "config": {
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "image_size": 64,
            "patch_size": 16,
            "depths": [2, 2, 2],
            "key_dim": [16, 16, 16],
        },
        "inputs": _IMAGE_64,
    },
    "lightglue": {"inputs": {"pixel_values": ("normal", 1, 2, 1, 64, 64)}},
    "lw_detr_vit": {"config": _LW_DETR, "inputs": _IMAGE_64},
    "lw_detr": {
        "config": {
            "backbone_config": {"out_indices": [2, 4]},
            "projector_scale_factors": [1.0],
        },
        "inputs": _IMAGE_64,
        "left_out": _POINTS,
    },
    "mask2former": {
        "config": {"backbone_config": {"model_type": "swin", **SWIN_FOUR, "out_features": _STAGES}},
        "inputs": _IMAGE_64,
    },
    "maskformer": {
        "config": {
            "backbone_config": {"model_type": "swin", **SWIN_FOUR, "out_features": _STAGES},
            "decoder_config": {**_RESNET_LAST},
        },
        "inputs": _IMAGE_64,
    },
    "maskformer-swin": {"config": _SWIN},
    "omdet-turbo": {
        "config": _RESNET,
        "inputs": {
            **_IMAGE_64,
            "classes_input_ids": ("ids", 2, 5),
            "classes_attention_mask": ("ones", 2, 5),
            "tasks_input_ids": ("ids", 1, 6),
            "tasks_attention_mask": ("ones", 1, 6),
            "classes_structure": ("exactly", [2]),
        },
    },
    "oneformer": {
        "config": {
            "backbone_config": {"model_type": "swin", **SWIN_FOUR, "out_features": _STAGES},
            "conv_dim": 64,
            "mask_dim": 64,
            "hidden_dim": 64,
            "text_encoder_width": 64,
            "task_seq_len": 9,
        },
        "inputs": {**_IMAGE_64, "task_inputs": ("ids", 1, 9)},
    },
    "pp_doclayout_v2": {
        "config": {
            **_DETECTION,
            "num_labels": 4,
            "class_thresholds": [0.5] * 4,
            "class_order": [0, 1, 2, 3],
        },
        "inputs": _IMAGE_64,
    },
    "pp_doclayout_v3": {
        # All queries are nearly equal. Scaling up queries and keys would not give the attention
        # clear maxima, but only amplify rounding errors.
        "sharpen": False,
        "config": {
            **_DETECTION,
            "backbone_config": {**_HGNET, "out_features": _STAGES},
            "encoder_in_channels": [32, 32, 64],
            "x4_feat_dim": 16,
        },
        "inputs": _IMAGE_64,
        "left_out": _POINTS,
    },
    "pp_doclayout_v4": {"config": _DETECTION, "inputs": _IMAGE_64, "left_out": _POINTS},
    "prompt_depth_anything": {"config": {"backbone_config": _DINOV2_FOUR, **_NECK}},
    "pvt": {**_PYRAMID, "config": {**_PYRAMID["config"], "image_size": 64}},
    "pvt_v2": {**_PYRAMID, "config": {**_PYRAMID["config"], "image_size": 64}},
    "rt_detr": {"config": _DETECTION, "inputs": _IMAGE_64, "left_out": _POINTS},
    "rt_detr_v2": {"config": _DETECTION, "inputs": _IMAGE_64, "left_out": _POINTS},
    "sam": _SAM,
    "sam2": {
        "config": {
            "prompt_encoder_config": {"image_size": 64},
            "mask_decoder_config": {"iou_head_hidden_dim": 32},
        },
        "inputs": _SAM["inputs"],
    },
    "sam2_hiera_det_model": {"config": _HIERA_DET, "inputs": _IMAGE_64},
    "sam2_vision_model": {
        "config": {
            "backbone_channel_list": [128, 64, 32, 16],
            "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
            "fpn_hidden_size": 64,
        },
        "inputs": _IMAGE_64,
    },
    "sam_hq": {**_SAM, "config": {**_SAM["config"], "mask_decoder_config": {"vit_dim": 64}}},
    "sapiens2": {"config": {"num_key_value_heads_per_layer": [4, 2]}},
    "segformer": _PYRAMID,
    "seggpt": {
        "config": {
            "image_size": [64, 32],
            "intermediate_hidden_state_indices": [1],
            "merge_index": 0,
        },
        "inputs": {
            "pixel_values": ("normal", 1, 3, 32, 32),
            "prompt_pixel_values": ("normal", 1, 3, 32, 32),
            "prompt_masks": ("normal", 1, 3, 32, 32),
        },
    },
    "superglue": {
        "config": {
            "gnn_layers_types": ["self", "cross"],
            "keypoint_encoder_sizes": [16, 64],
            "hidden_size": 64,
            "keypoint_detector_config": {"descriptor_decoder_dim": 64},
        },
        "inputs": {"pixel_values": ("normal", 1, 2, 1, 64, 64)},
    },
    "swin": {"config": _SWIN},
    "swin2sr": {
        "config": {
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "patch_size": 1,
            "image_size": 8,
            "window_size": 4,
        }
    },
    "swinv2": {"config": _SWIN},
    "table-transformer": {"config": _RESNET_LAST, "inputs": _IMAGE_96},
    "tipsv2_dpt": {
        "config": {
            "backbone_config": {
                "num_hidden_layers": 4,
                "out_indices": [1, 2, 3, 4],
                "reshape_hidden_states": False,
            },
            "neck_hidden_sizes": [16, 16, 16, 16],
        }
    },
    "upernet": {
        "config": {
            "backbone_config": {
                "model_type": "swin",
                **SWIN_FOUR,
                "out_features": _STAGES,
            }
        },
        "inputs": _IMAGE_64,
    },
    "vjepa2": {"config": {"crop_size": 32, "frames_per_clip": 4}},
    "vit_mae": {"inputs": {"noise": ("normal", 1, 16)}},
    "vitmatte": {
        "config": {
            "fusion_hidden_sizes": [16, 16, 16, 16],
            "convstream_hidden_sizes": [8, 8, 8],
            "backbone_config": {"num_channels": 4},
        },
        "inputs": {"pixel_values": ("normal", 1, 4, 32, 32)},
    },
    "vitpose_backbone": {"config": {"part_features": 16}},
    "zoedepth": {
        "config": {
            "backbone_config": {
                "num_hidden_layers": 4,
                "out_indices": [1, 2, 3, 4],
                "reshape_hidden_states": False,
            },
            "neck_hidden_sizes": [16, 16, 16, 16],
            "bottleneck_features": 16,
        }
    },
}
