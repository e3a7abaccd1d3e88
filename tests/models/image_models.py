"""Functions that make tiny vision-language models and chats, or read the weights of timm models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from tokenizers import AddedToken

from model_types.build import tiny_model
from model_types.cases import Case, override_of
from model_types.shrink import merged
from models.tiny import SIZE, sharpen

TEXT: dict[str, Any] = {
    **SIZE,
    "vocab_size": 400,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SQUARE = {"height": 32, "width": 32}
_FACTOR = 2.0

# Chat template, in which IMAGE is replaced by the image token of a model.
_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

Made = tuple[Any, Any]


def chat(*parts: Any) -> list[dict[str, Any]]:
    """Return a chat with one message of a user. Strings are text, other values are images."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def _with(tokenizer: Any, *tokens: str) -> Any:
    """Return a copy of the tokenizer with `tokens` added as special tokens."""
    extended = copy.deepcopy(tokenizer)
    extended.add_tokens([AddedToken(token, special=True) for token in tokens], special_tokens=True)
    return extended


def _ids(tokenizer: Any, **tokens: str) -> dict[str, int]:
    """Return a dictionary from each keyword to the id of its token."""
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()}


def _model(model_type: str, class_name: str, settings: dict[str, Any], **text: Any) -> Any:
    """Return a tiny model, whose queries and keys are scaled up so that attention is not uniform.

    `text` contains settings of the text model, and `settings` all other settings.
    """
    text_config = {"vocab_size": 400, "max_position_embeddings": 512, **text}
    override = override_of(Case(model_type))["config"]
    changes = merged(override, {"text_config": text_config, **settings})
    model = tiny_model(model_type, class_name, changes)
    sharpen(model, _FACTOR)
    return model


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
    ids = _ids(tokenizer, image_token_id="<image>")
    return _model("llava", "LlavaForConditionalGeneration", ids), processor


def _llava_next(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, "<image>")
    tiles = [[64, 64]]
    processor = transformers.LlavaNextProcessor(
        transformers.LlavaNextImageProcessorPil(
            size=_SQUARE, crop_size=_SQUARE, image_grid_pinpoints=tiles
        ),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_template("<image>"),
    )
    settings = {"image_grid_pinpoints": tiles, **_ids(tokenizer, image_token_id="<image>")}
    return _model("llava_next", "LlavaNextForConditionalGeneration", settings), processor


def _gemma3(tokenizer: Any) -> Made:
    begin, end, soft = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
    tokenizer = _with(tokenizer, begin, end, soft)
    ids = _ids(tokenizer, image_token_id=soft, boi_token_index=begin, eoi_token_index=end)
    tokenizer.boi_token, tokenizer.eoi_token, tokenizer.image_token = begin, end, soft
    tokenizer.image_token_id, tokenizer.boi_token_id = ids["image_token_id"], ids["boi_token_index"]
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessorPil(size=_SQUARE),
        tokenizer,
        chat_template=_template(begin),
        image_seq_length=4,
    )
    model = _model("gemma3", "Gemma3ForConditionalGeneration", ids, sliding_window=6)
    return model, processor


def _qwen_processor(tokenizer: Any) -> Any:
    class OfImages(transformers.Qwen2VLProcessor):  # type: ignore[misc]
        """A processor of texts and images. Videos would need torchvision."""

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


def _qwen2_5(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, *_QWEN_TOKENS.values())
    # Vision layer 1 attends to the whole image, layers 0 and 2 in windows of four by four patches.
    vision = {"patch_size": 14, "depth": 3, "window_size": 56, "fullatt_block_indexes": [1]}
    settings = {**_ids(tokenizer, **_QWEN_TOKENS), "vision_config": vision}
    model = _model("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", settings)
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
    settings = {"scale_factor": 2, **_ids(tokenizer, image_token_id="<image>")}
    return _model("idefics3", "Idefics3ForConditionalGeneration", settings), processor


def _blip2(tokenizer: Any) -> Made:
    tokenizer = _with(tokenizer, "<image>")
    processor = transformers.Blip2Processor(
        transformers.BlipImageProcessorPil(size=_SQUARE), tokenizer, num_query_tokens=4
    )
    settings = {"num_query_tokens": 4, **_ids(tokenizer, image_token_index="<image>")}
    return _model("blip-2", "Blip2ForConditionalGeneration", settings), processor


#: For each kind of model, a function that makes a tiny model and its processor from a tokenizer.
MODELS: dict[str, Callable[[Any], Made]] = {
    "llava": _llava,
    "llava next": _llava_next,
    "gemma 3": _gemma3,
    "qwen 2.5": _qwen2_5,
    "idefics 3": _idefics3,
    "blip 2": _blip2,
}


def mixing_nothing(model: Any) -> Any:
    """Return a copy of the model whose vision attention gives 0, so no patch affects another."""
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
    """Return the attention weights that a timm model computes in a forward, one tensor per softmax.

    A tensor has the axes (windows or images, heads, queries, keys). Fused attention is turned off
    in `part`, a module of the model, or in all modules if `part` is None.
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
