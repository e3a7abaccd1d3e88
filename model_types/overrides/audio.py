"""Overrides for tiny models of sound (see `model_types.overrides`)."""

from __future__ import annotations

from typing import Any

_MEL_80 = ("normal", 1, 64, 80)
_CODEC: dict[str, Any] = {
    "num_filters": 8,
    "upsampling_ratios": [4, 4],
    "downsampling_ratios": [4, 4],
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "upsample_groups": 16,
    "num_key_value_heads": 4,
    "hidden_size": 64,
}
_OMNI_AUDIO: dict[str, Any] = {
    "config": {"n_window": 8, "output_dim": 64, "max_source_positions": 64, "num_mel_bins": 16},
    "inputs": {
        "input_features": ("normal", 16, 24),
        "feature_lens": ("exactly", [24]),
        "aftercnn_lens": ("exactly", [12]),
        "input_features_mask": None,
    },
}
_CLAP: dict[str, Any] = {
    "patch_embeds_hidden_size": 16,
    "depths": [2, 2],
    "num_attention_heads": [2, 4],
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "spec_size": 64,
    "num_mel_bins": 16,
    "window_size": 4,
}
_EQUAL_HEADS: dict[str, Any] = {"num_key_value_heads": 4}
_NEMOTRON: dict[str, Any] = {
    "config": {**_EQUAL_HEADS, "num_mel_bins": 16},
    "inputs": {"input_features": ("normal", 1, 64, 16), "input_features_mask": ("true", 1, 64)},
}
_STREAMING: dict[str, Any] = {
    "num_mel_bins": 16,
    "subsampling_conv_channels": 8,
    "default_num_lookahead_tokens": 2,
    "sliding_window": 4,
    **_EQUAL_HEADS,
}
_CODEBOOKS: dict[str, Any] = {
    "inputs": {
        "input_ids": ("ids", 2, 14),
        "attention_mask": None,
        "decoder_input_ids": None,
        "input_features": None,
    }
}
_WAV_TOKENIZER = {
    "config": {
        "hidden_size": 64,
        "codebook_dim": 64,
        "decoder_hidden_size": 64,
        "decoder_attention_num_groups": 4,
    },
    "inputs": {"input_values": ("normal", 1, 1, 6000)},
}

AUDIO: dict[str, dict[str, Any]] = {
    "canary_decoder": {
        "inputs": {
            "encoder_hidden_states": ("normal", 1, 11, 64),
            "decoder_input_ids": None,
        }
    },
    "clap": {
        "config": {
            "projection_dim": 64,
            "text_config": {"projection_dim": 64},
            "audio_config": {"projection_dim": 64},
        },
        "inputs": {"input_features": ("normal", 1, 1, 256, 16)},
    },
    "clap_audio_model": {
        "config": _CLAP,
        "inputs": {"input_features": ("normal", 1, 1, 256, 16)},
    },
    "csm_depth_decoder_model": {
        "config": {"vocab_size": 220, "num_codebooks": 20},
        "inputs": {"input_ids": ("ids", 1, 14), "backbone_last_hidden_state": ("normal", 1, 64)},
    },
    "dia": {
        "config": {"decoder_config": {"cross_hidden_size": 64}},
        "inputs": {"decoder_input_ids": ("ids", 1, 8, 9)},
    },
    "dia_decoder": {
        "inputs": {
            "input_ids": ("ids", 1, 8, 9),
            "attention_mask": ("ones", 1, 8),
            "encoder_hidden_states": ("normal", 1, 11, 64),
        }
    },
    "fastspeech2_conformer": {
        "config": {
            "vocab_size": 220,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
        },
    },
    "fun_asr_nano_encoder": {
        "config": {"num_timestamp_prediction_layers": 2},
        "inputs": {
            "input_features": ("normal", 1, 20, 560),
            "input_features_mask": ("ones", 1, 20),
        },
    },
    "gemma3n_audio": {
        "config": {"vocab_offset": 0, "conf_num_attention_heads": 4},
        "inputs": {
            "audio_mel": ("normal", 1, 64, 128),
            "audio_mel_mask": ("false", 1, 64),
        },
    },
    "gemma4_audio": {
        "config": {"subsampling_conv_channels": [128, 8]},
        "inputs": {
            "input_features": ("normal", 1, 64, 128),
            "attention_mask": ("true", 1, 64),
            "input_features_mask": ("true", 1, 64),
        },
    },
    "granite_speech5_ctc": {"inputs": {"input_features": ("normal", 1, 40, 320)}},
    "granite_speech5_encoder": {
        "config": {"context_size": 8, "num_key_value_heads": 4},
        "inputs": {"input_features": ("normal", 1, 40, 320)},
    },
    "granite_speech_encoder": {
        "config": {"context_size": 8},
        "inputs": {"hidden_states": ("normal", 1, 20, 160)},
    },
    "granite_speech_plus_encoder": {
        "config": {"context_size": 8},
        "inputs": {"hidden_states": ("normal", 1, 20, 160)},
    },
    "kyutai_speech_to_text": {
        "config": {"codebook_vocab_size": 60},
        "inputs": {"input_ids": ("small", 1, 14, 4), "attention_mask": ("ones", 1, 14)},
    },
    "mimi": {
        "config": {**_CODEC, "use_causal_conv": True},
        "inputs": {"input_values": ("normal", 1, 1, 512)},
    },
    "mimi_decoder": {"config": _CODEC, "inputs": {"latents": ("normal", 1, 64, 12)}},
    "moonshine": {
        "config": {
            "encoder_num_key_value_heads": 4,
            "decoder_num_key_value_heads": 4,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
        },
        "inputs": {"input_values": ("normal", 1, 8000)},
    },
    "moonshine_streaming": {
        "config": _EQUAL_HEADS,
        "inputs": {"input_values": ("normal", 1, 1600)},
    },
    "moonshine_streaming_encoder": {
        "config": {"sliding_windows": [[5, 2], [5, 0]], "num_key_value_heads": 4},
        "inputs": {"input_values": ("normal", 1, 1600)},
    },
    "moshi_depth": {
        "config": {"num_codebooks": 14, "max_position_embeddings": 20, "input_size": 64},
        "inputs": {"input_ids": ("small", 1, 14), "last_hidden_state": ("normal", 1, 1, 64)},
    },
    "musicgen": {
        "class": "MusicgenForConditionalGeneration",
        "config": {
            "audio_encoder": {"num_filters": 4, "upsampling_ratios": [4, 4], "codebook_dim": 16},
            "decoder": {"num_codebooks": 2, "vocab_size": 220},
        },
        "inputs": {"decoder_input_ids": ("ids", 2, 9)},
        "heads": {"MusicgenForCausalLM": _CODEBOOKS},
    },
    "musicgen_melody": {
        "class": "MusicgenMelodyForConditionalGeneration",
        "config": {
            "audio_encoder": {"num_filters": 4, "upsampling_ratios": [4, 4], "codebook_dim": 16},
            "decoder": {"num_codebooks": 2, "vocab_size": 220},
        },
        "inputs": {"decoder_input_ids": ("ids", 2, 9), "input_features": None},
        "heads": {"MusicgenMelodyForCausalLM": _CODEBOOKS},
    },
    "musicgen_decoder": {
        "config": {"num_codebooks": 2, "vocab_size": 220},
        "inputs": {"input_ids": ("ids", 2, 14), "attention_mask": None},
    },
    "musicgen_melody_decoder": {
        "config": {"num_codebooks": 2, "vocab_size": 220},
        "inputs": {"input_ids": ("ids", 2, 14), "attention_mask": None},
    },
    "nemotron3_5_asr": {
        "skip": "only its encoder, nemotron_asr_streaming_encoder, has attention",
    },
    "nemotron_asr_streaming": {
        "skip": "only its encoder, nemotron_asr_streaming_encoder, has attention",
    },
    "nemotron_asr_streaming_encoder": {
        "config": _STREAMING,
        "inputs": {
            "input_features": ("normal", 1, 160, 16),
            "attention_mask": ("ones", 1, 160),
        },
    },
    "nemotron3_5_transcribe_asr_audio": _NEMOTRON,
    "nemotron3_5_transcribe_word_timestamp": {
        "config": _EQUAL_HEADS,
        "inputs": {"inputs_embeds": ("normal", 1, 14, 64)},
    },
    "nemotron3_diarization": {
        "config": {"head_config": {"audio_hidden_size": 64}},
        "inputs": _NEMOTRON["inputs"],
    },
    "nemotron3_diarization_audio": _NEMOTRON,
    "pocket_tts": {"config": {**_EQUAL_HEADS, "flow_head_config": {"condition_dim": 64}}},
    "gradium_phonon_tts": {"config": {**_EQUAL_HEADS, "flow_head_config": {"condition_dim": 64}}},
    "csm": {
        "config": {"num_codebooks": 3},
        "inputs": {"input_ids": ("small", 1, 14, 3)},
    },
    "voxtral_realtime_text": {"inputs": {"t_cond": ("normal", 1, 1, 64)}},
    "pe_audio": {"inputs": {"input_values": ("normal", 1, 1, 640)}},
    "phi4_multimodal_audio": {
        "config": {
            "nemo_conv_channels": 16,
            "ext_pw_out_channel": 64,
            "depthwise_separable_out_channel": 64,
        },
        "inputs": {"hidden_states": _MEL_80, "mask": ("true", 1, 64)},
    },
    "qwen2_5_omni_audio_encoder": _OMNI_AUDIO,
    "qwen3_omni_moe_audio_encoder": {
        **_OMNI_AUDIO,
        "config": {"downsample_hidden_size": 16, "num_mel_bins": 16, "output_dim": 64},
        "inputs": {
            "input_features": ("normal", 16, 100),
            "feature_lens": ("exactly", [100]),
            "aftercnn_lens": ("exactly", [13]),
            "input_features_mask": None,
        },
    },
    "qwen3_omni_moe_talker_text": {
        "config": {"shared_expert_intermediate_size": 48},
        "inputs": {"input_ids": None, "inputs_embeds": ("normal", 1, 14, 64)},
    },
    "qwen3_omni_moe_talker_code_predictor": {
        "inputs": {"input_ids": None, "inputs_embeds": ("normal", 1, 14, 64)}
    },
    "speecht5": {
        "class": "SpeechT5ForSpeechToText",
        "config": {"vocab_size": 220, "encoder_max_relative_position": 8},
        "inputs": {"input_values": ("normal", 1, 1600)},
    },
    "wav2vec2-bert": {"heads": {"Wav2Vec2BertForCTC": {"config": {"vocab_size": 220}}}},
    "wav2vec2-conformer": {"heads": {"Wav2Vec2ConformerForCTC": {"config": {"vocab_size": 220}}}},
    "wavtokenizer": _WAV_TOKENIZER,
    "wavtokenizer_encoder": _WAV_TOKENIZER,
    "xcodec": {
        "config": {
            "acoustic_model_config": {"downsampling_ratios": [5, 4], "upsampling_ratios": [4, 5]},
        },
        "inputs": {"input_values": ("normal", 1, 1, 1600)},
    },
}
