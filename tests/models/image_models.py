"""Tiny models of images and text, with real processors that need no network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from tokenizers import AddedToken

from models.tiny import SIZE, built

__all__ = ["MODELS", "TEXT", "chat", "mixing_nothing", "softmaxes"]

TEXT: dict[str, Any] = {
    **SIZE,
    "vocab_size": 400,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_VISION: dict[str, Any] = {**SIZE, "image_size": 32, "patch_size": 8}
_SQUARE = {"height": 32, "width": 32}
_FACTOR = 10.0

# A chat template that puts an image at its position in the text, as such models do.
_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

Made = tuple[Any, Any]


def chat(*parts: Any) -> list[dict[str, Any]]:
    """Return one message of a user. Strings are text, other values are images."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def _with(tokenizer: Any, *tokens: str) -> Any:
    """Return a copy of the tokenizer with additional special tokens."""
    extended = copy.deepcopy(tokenizer)
    extended.add_tokens([AddedToken(token, special=True) for token in tokens], special_tokens=True)
    return extended


def _template(image: str) -> str:
    return _TEMPLATE.replace("IMAGE", image)


def _llava(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, "<image>")
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size=_SQUARE, do_center_crop=False),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_template("<image>"),
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return built("LlavaForConditionalGeneration", config, factor=_FACTOR), processor


def _gemma3(tokenizer: Any) -> Made:
    begin, end, soft = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
    tokenizer = _with(tokenizer, begin, end, soft)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in (begin, end, soft)}
    tokenizer.boi_token, tokenizer.eoi_token, tokenizer.image_token = begin, end, soft
    tokenizer.image_token_id, tokenizer.boi_token_id = ids[soft], ids[begin]
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessorPil(size=_SQUARE),
        tokenizer,
        chat_template=_template(begin),
        image_seq_length=4,
    )
    config = transformers.Gemma3Config(
        vision_config=_VISION,
        text_config={**TEXT, "head_dim": 12, "sliding_window": 6},
        mm_tokens_per_image=4,
        image_token_id=ids[soft],
        boi_token_index=ids[begin],
        eoi_token_index=ids[end],
    )
    model = built("Gemma3ForConditionalGeneration", config, factor=_FACTOR)
    with torch.no_grad():
        # The projector starts at zero. Without this the image would not matter.
        random = torch.Generator().manual_seed(0)
        model.model.multi_modal_projector.mm_input_projection_weight.normal_(generator=random)
    return model, processor


def _qwen_processor(tokenizer: Any) -> Any:
    class OfImages(transformers.Qwen2VLProcessor):  # type: ignore[misc]
        """A processor without videos, which need torchvision."""

        def __init__(
            self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None
        ) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
            self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
            transformers.ProcessorMixin.__init__(
                self, image_processor, tokenizer, chat_template=chat_template
            )

    template = _template("<|vision_start|><|image_pad|><|vision_end|>")
    return OfImages(transformers.Qwen2VLImageProcessorPil(), tokenizer, chat_template=template)


_QWEN_TOKENS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
_QWENTEXT = {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}
_QWEN_VISION = {
    "num_heads": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def _qwen2(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, *_QWEN_TOKENS.values())
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _QWEN_TOKENS.items()}
    vision = {**_QWEN_VISION, "depth": 2, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2}
    config = transformers.Qwen2VLConfig(text_config=_QWENTEXT, vision_config=vision, **ids)
    model = built("Qwen2VLForConditionalGeneration", config, factor=_FACTOR)
    return model, _qwen_processor(tokenizer)


def _qwen2_5(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, *_QWEN_TOKENS.values())
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in _QWEN_TOKENS.items()}
    vision = {
        **_QWEN_VISION,
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 48,
        # Four patches. All layers but the second use windows of 4 x 4.
        "window_size": 56,
        "fullatt_block_indexes": [1],
    }
    config = transformers.Qwen2_5_VLConfig(text_config=_QWENTEXT, vision_config=vision, **ids)
    model = built("Qwen2_5_VLForConditionalGeneration", config, factor=_FACTOR)
    return model, _qwen_processor(tokenizer)


def _idefics3(tokenizer: Any) -> Made:
    tile_tokens = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
    around = ["<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
    tokenizer = _with(tokenizer, "<image>", *around, *tile_tokens)
    processor = transformers.Idefics3Processor(
        transformers.Idefics3ImageProcessorPil(
            size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
        ),
        tokenizer,
        image_seq_len=4,
        chat_template=_template("<image>"),
    )
    config = transformers.Idefics3Config(
        vision_config=_VISION,
        text_config=transformers.LlamaConfig(**TEXT),
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return built("Idefics3ForConditionalGeneration", config, factor=_FACTOR), processor


def _blip2(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, "<image>")
    processor = transformers.Blip2Processor(
        transformers.BlipImageProcessorPil(size=_SQUARE), tokenizer, num_query_tokens=4
    )
    config = transformers.Blip2Config(
        vision_config={**_VISION, "initializer_range": 0.02},
        qformer_config={
            **SIZE,
            "vocab_size": 400,
            "cross_attention_frequency": 1,
            "encoder_hidden_size": 48,
        },
        text_config=transformers.OPTConfig(
            vocab_size=400,
            hidden_size=48,
            word_embed_proj_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            max_position_embeddings=128,
        ),
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return built("Blip2ForConditionalGeneration", config, factor=_FACTOR), processor


#: Functions by kind that make a model and its processor from a byte-level tokenizer.
MODELS: dict[str, Callable[[Any], Made]] = {
    "llava": _llava,
    "gemma 3": _gemma3,
    "qwen 2": _qwen2,
    "qwen 2.5": _qwen2_5,
    "idefics 3": _idefics3,
    "blip 2": _blip2,
}


def mixing_nothing(model: Any) -> Any:
    """Return a copy of the model whose vision tower does not mix patches."""
    alone = copy.deepcopy(model)
    for name, module in alone.named_modules():
        in_tower = "vision" in name or "visual" in name
        if in_tower and name.endswith(("attn", "attention")):
            module.register_forward_hook(lambda _, __, output: _nothing(output))
    return alone


def _nothing(output: Any) -> Any:
    first, *others = output if isinstance(output, tuple) else (output,)
    return (first * 0, *others) if others else first * 0


def softmaxes(
    model: Any, pixels: torch.Tensor, part: torch.nn.Module | None = None
) -> list[torch.Tensor]:
    """Return the outputs of timm's own softmaxes in a plain forward without fused attention.

    Each is (windows or images, heads, queries, keys). `part` is the part of the model whose
    softmaxes are returned, or None for the whole model.
    """
    outputs: list[torch.Tensor] = []
    softmax = torch.Tensor.softmax

    def noting(self: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        out = softmax(self, *arguments, **named)
        outputs.append(out)
        return out

    fused = [module for module in (part or model).modules() if getattr(module, "fused_attn", False)]
    for module in fused:
        module.fused_attn = False
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(torch.Tensor, "softmax", noting)
        model(pixels)
    for module in fused:
        module.fused_attn = True
    return outputs
