"""Tiny pipelines of diffusers with random weights, of the classes that people load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    LlamaConfig,
    LlamaModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

PROMPT = "a red cat on grass"
#: Number of steps: a first, a middle and a last one.
STEPS = 3
_WORDS = ["a", "red", "cat", "on", "grass", "dog", "blue", "the", "in", "snow"]
_WIDTH = 32


def tokenizer(folder: Path, kind: str, length: int) -> Any:
    """Write a tokenizer of words with the special tokens of `kind` to a folder, and load it."""
    start, end, pad = {
        "clip": ("<|startoftext|>", "<|endoftext|>", "<|endoftext|>"),
        "clip 2": ("<|startoftext|>", "<|endoftext|>", "!"),
        "bert": ("[CLS]", "[SEP]", "[PAD]"),
        "t5": (None, "</s>", "<pad>"),
    }[kind]
    special = [name for name in dict.fromkeys(("<unk>", pad, start, end)) if name]
    ids = {name: number for number, name in enumerate([*special, *_WORDS])}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}" if start else f"$A {end}",
        special_tokens=[(name, ids[name]) for name in special],
    )
    names = {"bos_token": start, "eos_token": end, "pad_token": pad, "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=length,
        **{name: value for name, value in names.items() if value},
    )
    fast.save_pretrained(folder / kind.replace(" ", "-"))
    return PreTrainedTokenizerFast.from_pretrained(folder / kind.replace(" ", "-"))


def _clip(*, projected: bool = False) -> Any:
    config = CLIPTextConfig(
        vocab_size=20,
        hidden_size=_WIDTH,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=_WIDTH,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=1,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config).eval()


def _t5(*, multilingual: bool = False) -> Any:
    options = {
        "vocab_size": 20,
        "d_model": _WIDTH,
        "d_kv": 8,
        "d_ff": 37,
        "num_layers": 2,
        "num_heads": 4,
    }
    if multilingual:
        return UMT5EncoderModel(UMT5Config(**options)).eval()
    return T5EncoderModel(T5Config(**options)).eval()


def _vae(channels: int = 4, downs: int = 2) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(8,) * downs,
        in_channels=3,
        out_channels=3,
        down_block_types=["DownEncoderBlock2D"] * downs,
        up_block_types=["UpDecoderBlock2D"] * downs,
        latent_channels=channels,
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.0,
        scaling_factor=1.0,
    )


def _unet(cross: int, **options: Any) -> Any:
    return diffusers.UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=16,
        in_channels=4,
        out_channels=4,
        norm_num_groups=4,
        cross_attention_dim=cross,
        **{
            "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
            "attention_head_dim": (2, 4),
        }
        | options,
    )


def _ddim() -> Any:
    return diffusers.DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False
    )


def stable_diffusion(folder: Path) -> Any:
    return diffusers.StableDiffusionPipeline(
        vae=_vae(),
        text_encoder=_clip(),
        tokenizer=tokenizer(folder, "clip", 77),
        unet=_unet(_WIDTH),
        scheduler=_ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl(folder: Path) -> Any:
    return diffusers.StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=_clip(),
        text_encoder_2=_clip(projected=True),
        tokenizer=tokenizer(folder, "clip", 77),
        tokenizer_2=tokenizer(folder, "clip 2", 77),
        unet=_unet(
            2 * _WIDTH,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            transformer_layers_per_block=(1, 2),
            projection_class_embeddings_input_dim=6 * 8 + _WIDTH,
        ),
        scheduler=diffusers.EulerDiscreteScheduler(timestep_spacing="leading"),
        add_watermarker=False,
    )


def stable_diffusion_3(folder: Path) -> Any:
    return diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16,
            patch_size=2,
            in_channels=4,
            num_layers=3,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=2 * _WIDTH,
            caption_projection_dim=32,
            pooled_projection_dim=2 * _WIDTH,
            out_channels=4,
            dual_attention_layers=(0,),
            qk_norm="rms_norm",
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(),
        text_encoder=_clip(projected=True),
        tokenizer=tokenizer(folder, "clip", 77),
        text_encoder_2=_clip(projected=True),
        tokenizer_2=tokenizer(folder, "clip 2", 77),
        text_encoder_3=T5EncoderModel(
            T5Config(vocab_size=20, d_model=64, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
        ).eval(),
        tokenizer_3=tokenizer(folder, "t5", 256),
    )


def flux(folder: Path) -> Any:
    return diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(
            in_channels=16,
            num_layers=1,
            num_single_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=_WIDTH,
            pooled_projection_dim=_WIDTH,
            axes_dims_rope=(4, 4, 8),
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(),
        text_encoder=_clip(),
        tokenizer=tokenizer(folder, "clip", 77),
        text_encoder_2=_t5(),
        tokenizer_2=tokenizer(folder, "t5", 77),
    )


def pixart(folder: Path) -> Any:
    return diffusers.PixArtSigmaPipeline(
        tokenizer=tokenizer(folder, "t5", 120),
        text_encoder=_t5(),
        vae=_vae(),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=16,
            num_layers=2,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=2,
            caption_channels=_WIDTH,
            in_channels=4,
            cross_attention_dim=16,
            out_channels=8,
        ),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )


def hunyuan(folder: Path) -> Any:
    return diffusers.HunyuanDiTPipeline(
        vae=_vae(downs=4),
        text_encoder=BertModel(
            BertConfig(
                vocab_size=20,
                hidden_size=_WIDTH,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                max_position_embeddings=128,
            )
        ).eval(),
        tokenizer=tokenizer(folder, "bert", 77),
        text_encoder_2=_t5(),
        tokenizer_2=tokenizer(folder, "t5", 256),
        transformer=diffusers.HunyuanDiT2DModel(
            sample_size=16,
            num_layers=2,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=3,
            in_channels=4,
            cross_attention_dim=_WIDTH,
            cross_attention_dim_t5=_WIDTH,
            pooled_projection_dim=16,
            hidden_size=24,
            activation_fn="gelu-approximate",
        ),
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def wan(folder: Path) -> Any:
    return diffusers.WanPipeline(
        tokenizer=tokenizer(folder, "t5", 512),
        text_encoder=_t5(multilingual=True),
        vae=diffusers.AutoencoderKLWan(
            base_dim=3,
            z_dim=16,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            temperal_downsample=[False, True, True],
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        transformer=diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=16,
            out_channels=16,
            text_dim=_WIDTH,
            freq_dim=256,
            ffn_dim=32,
            num_layers=2,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=32,
        ),
    )


def cog_video(folder: Path) -> Any:
    return diffusers.CogVideoXPipeline(
        tokenizer=tokenizer(folder, "t5", 226),
        text_encoder=_t5(),
        vae=diffusers.AutoencoderKLCogVideoX(
            in_channels=3,
            out_channels=3,
            down_block_types=("CogVideoXDownBlock3D",) * 4,
            up_block_types=("CogVideoXUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            latent_channels=4,
            layers_per_block=1,
            norm_num_groups=2,
            temporal_compression_ratio=4,
        ),
        transformer=diffusers.CogVideoXTransformer3DModel(
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=4,
            out_channels=4,
            time_embed_dim=2,
            text_embed_dim=_WIDTH,
            num_layers=2,
            sample_width=16,
            sample_height=8,
            sample_frames=9,
            patch_size=2,
            max_text_seq_length=12,
        ),
        scheduler=diffusers.CogVideoXDDIMScheduler(),
    )


def hunyuan_video(folder: Path) -> Any:
    return diffusers.HunyuanVideoPipeline(
        text_encoder=LlamaModel(_llama()).eval(),
        tokenizer=tokenizer(folder, "bert", 256),
        transformer=diffusers.HunyuanVideoTransformer3DModel(
            in_channels=4,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=10,
            num_layers=1,
            num_single_layers=2,
            num_refiner_layers=1,
            patch_size=2,
            patch_size_t=1,
            text_embed_dim=_WIDTH,
            pooled_projection_dim=_WIDTH,
            rope_axes_dim=(2, 4, 4),
        ),
        vae=diffusers.AutoencoderKLHunyuanVideo(
            in_channels=3,
            out_channels=3,
            latent_channels=4,
            down_block_types=("HunyuanVideoDownBlock3D",) * 4,
            up_block_types=("HunyuanVideoUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            norm_num_groups=4,
            mid_block_add_attention=True,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=_clip(),
        tokenizer_2=tokenizer(folder, "clip", 77),
    )


def _llama() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=20,
        hidden_size=_WIDTH,
        intermediate_size=37,
        num_hidden_layers=3,
        num_attention_heads=4,
    )


def qwen_image(folder: Path) -> Any:
    return diffusers.QwenImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=24,
            z_dim=4,
            dim_mult=[1, 2, 4],
            num_res_blocks=1,
            temperal_downsample=[False, True],
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
        ),
        # Any language model that returns hidden states.
        text_encoder=LlamaModel(_llama()).eval(),
        tokenizer=tokenizer(folder, "bert", 512),
        transformer=diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=_WIDTH,
            axes_dims_rope=(8, 4, 4),
        ),
    )


#: Each pipeline with the settings of a small picture. Most classes expect sizes in latents.
BUILDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Stable Diffusion 1.5": (stable_diffusion, {"height": 32, "width": 24}),
    "Stable Diffusion XL": (stable_diffusion_xl, {"height": 32, "width": 24}),
    "Stable Diffusion 3": (stable_diffusion_3, {"height": 32, "width": 16}),
    "FLUX": (flux, {"height": 32, "width": 16, "max_sequence_length": 12}),
    "PixArt": (
        pixart,
        {
            "height": 32,
            "width": 16,
            "use_resolution_binning": False,
            "max_sequence_length": 12,
            "clean_caption": False,
        },
    ),
    "HunyuanDiT": (hunyuan, {"height": 128, "width": 64, "use_resolution_binning": False}),
    "Wan": (wan, {"height": 16, "width": 32, "num_frames": 9, "max_sequence_length": 12}),
    "CogVideoX": (
        cog_video,
        {"height": 16, "width": 32, "num_frames": 9, "max_sequence_length": 12},
    ),
    "HunyuanVideo": (
        hunyuan_video,
        {"height": 16, "width": 32, "num_frames": 5, "max_sequence_length": 12},
    ),
    "Qwen-Image": (qwen_image, {"height": 32, "width": 16, "max_sequence_length": 32}),
}


def make(kind: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return a pipeline in float32, and arguments of its call."""
    torch.manual_seed(0)
    build, settings = BUILDERS[kind]
    pipe = build(folder)
    pipe.set_progress_bar_config(disable=True)
    # Larger queries and keys, because almost uniform rows would hide a wrong formula.
    denoiser = getattr(pipe, "unet", None) or pipe.transformer
    with torch.no_grad():
        for name, weight in denoiser.named_parameters():
            if name.endswith(("to_q.weight", "to_k.weight", "add_q_proj.weight")):
                weight.mul_(4)
    return pipe, {"prompt": PROMPT, "num_inference_steps": STEPS, **settings}
