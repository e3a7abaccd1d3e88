"""Calls of pipelines that read images or videos."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import transformers
from transformers import pipeline

from attnviz import extract
from model_types.calls import own
from model_types.calls.judge import Call, Case
from model_types.calls.parts import (
    TEXT,
    TEXT_CONFIG,
    new_folder,
    phone_photo,
    photo,
    pieces,
    typed,
    words,
)
from model_types.calls.texts import named, piped
from models.tiny import built

_SQUARE = {"height": 32, "width": 32}
_VISION: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def vit(head: str = "ForImageClassification") -> Any:
    """Return a tiny ViT."""
    return built(f"ViT{head}", _VISION, factor=12.0)


def vit_processor(**settings: Any) -> Any:
    """Return the image processor of the tiny ViT."""
    return transformers.ViTImageProcessorPil(size=_SQUARE, **settings)


def clip() -> tuple[Any, Any]:
    """Return a tiny CLIP and its processor."""
    text = {**TEXT_CONFIG, "max_position_embeddings": 32}
    config = transformers.CLIPConfig(text_config=text, vision_config=_VISION, projection_dim=24)
    model = built("CLIPModel", config, factor=6.0)
    processor = transformers.CLIPProcessor(
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=_SQUARE),
        pieces(model_max_length=32),
    )
    return model, processor


def llava() -> tuple[Any, Any]:
    """Return a tiny LLaVA and its processor."""
    tokenizer = pieces("<image>")
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size=_SQUARE, do_center_crop=False),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    settings = {
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"),
        "text_config": {"vocab_size": 400, "max_position_embeddings": 512},
        "vision_config": {"image_size": 32, "patch_size": 8},
    }
    return typed("llava", "LlavaForConditionalGeneration", 2.0, **settings), processor


def image_chat(text: str = "the cat sat") -> list[dict[str, Any]]:
    """Return a chat with an image."""
    content = [{"type": "image", "image": photo()}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


def classifier(**settings: Any) -> Any:
    processor = settings.pop("processor", None) or vit_processor()
    return pipeline("image-classification", model=vit(), image_processor=processor, **settings)


def _saved(suffix: str) -> str:
    path = new_folder() / f"photo{suffix}"
    photo().save(path)
    return str(path)


def classification() -> Iterator[Case]:
    """Yield calls of image classification."""
    from PIL import Image

    processor = vit_processor
    for text, make in {
        "an image": lambda: piped(classifier(), photo()),
        "a phone photo, its path": lambda: piped(classifier(), str(phone_photo(new_folder()))),
        "a phone photo, opened": lambda: piped(classifier(), Image.open(phone_photo(new_folder()))),
        "a path": lambda: piped(classifier(), _saved(".png")),
        "a palette image": lambda: piped(classifier(), photo(mode="P")),
        "an RGBA image": lambda: piped(classifier(), photo(mode="RGBA")),
        "a grey image": lambda: piped(classifier(), photo(mode="L")),
        "a CMYK image": lambda: piped(classifier(), photo(mode="CMYK")),
        "a list of images": lambda: piped(classifier(), [photo(), photo(mode="L")]),
        "do_normalize=False in the processor": lambda: piped(
            classifier(processor=processor(do_normalize=False)), photo()
        ),
        "another mean in the processor": lambda: piped(
            classifier(processor=processor(image_mean=[0.1, 0.2, 0.3])), photo()
        ),
        "top_k": lambda: piped(classifier(top_k=1), photo()),
        "a phone photo, orientation 3": lambda: _turned(3),
        "a phone photo, orientation 5": lambda: _turned(5),
        "a phone photo, orientation 8": lambda: _turned(8),
        "a grey image with transparency": lambda: piped(classifier(), photo(mode="LA")),
        "a black and white image": lambda: piped(classifier(), photo(mode="1")),
        "batch_size=2, two images": lambda: piped(
            classifier(batch_size=2), [photo(), photo(40, 40)], expect={"batch": True}
        ),
        "a base64 string": _base64,
        "in bfloat16": _half,
        "a phone photo and a bare model with processor=": _bare_photo,
        "a list of paths": lambda: piped(
            classifier(), [_saved(".png"), str(phone_photo(new_folder()))]
        ),
        "named argument inputs": lambda: named(classifier(), inputs=photo()),
        "DeiT": lambda: piped(
            pipeline(
                "image-classification",
                model=built("DeiTForImageClassification", _VISION, factor=12.0),
                image_processor=transformers.DeiTImageProcessorPil(
                    size={"height": 40, "width": 40}, crop_size=_SQUARE
                ),
            ),
            str(phone_photo(new_folder())),
        ),
        "an own subclass that crops": lambda: piped(
            own.Cropping(model=vit(), image_processor=vit_processor()), photo()
        ),
    }.items():
        yield Case("image classification", text, make)


def _turned(orientation: int) -> Call:
    return piped(classifier(), str(phone_photo(new_folder(), orientation)))


def _base64() -> Call:
    path = Path(_saved(".png"))
    return piped(classifier(), base64.b64encode(path.read_bytes()).decode())


def _half() -> Call:
    pipe = pipeline("image-classification", model=vit().bfloat16(), image_processor=vit_processor())
    return piped(pipe, photo())


def _bare_photo() -> Call:
    """Return a call of a bare model, whose processor does not turn photos."""
    from PIL import Image

    model, processor = vit(), vit_processor()
    image = Image.open(phone_photo(new_folder()))
    return Call(
        model,
        lambda: model(**processor(image, return_tensors="pt")),
        lambda: extract(model, image, processor=processor, progress=False),
    )


def features() -> Iterator[Case]:
    """Yield calls of image feature extraction."""

    def pipe(**settings: Any) -> Any:
        return pipeline(
            "image-feature-extraction", model=vit("Model"), image_processor=vit_processor(),
            **settings,
        )  # fmt: skip

    for text, make in {
        "an image": lambda: piped(pipe(), photo()),
        "image_processor_kwargs do_normalize=False": lambda: piped(
            pipe(image_processor_kwargs={"do_normalize": False}), photo()
        ),
        "image_processor_kwargs with a mean": lambda: piped(
            pipe(image_processor_kwargs={"image_mean": [0.0, 0.3, 0.9]}), photo()
        ),
        "image_processor_kwargs at the call": lambda: _named_features(pipe()),
        "pool=True": lambda: piped(pipe(pool=True), photo()),
        "a phone photo": lambda: piped(pipe(), str(phone_photo(new_folder()))),
        "a list": lambda: piped(
            pipe(image_processor_kwargs={"do_rescale": False}), [photo(), photo(40, 40)]
        ),
    }.items():
        yield Case("image feature extraction", text, make)


def _named_features(pipe: Any) -> Call:
    arguments = {"image_processor_kwargs": {"do_normalize": False}}
    image = photo()
    return piped(pipe, {"inputs": image, **arguments}, own=lambda: pipe(image, **arguments))


def regions() -> Iterator[Case]:
    """Yield calls that detect, segment or measure parts of an image."""

    def yolos(**settings: Any) -> Any:
        model = built(
            "YolosForObjectDetection",
            {**_VISION, "num_detection_tokens": 5, "image_size": [32, 32]},
            factor=8.0,
        )
        processor = transformers.YolosImageProcessorPil(
            size={"shortest_edge": 32, "longest_edge": 48}
        )
        return pipeline("object-detection", model=model, image_processor=processor, **settings)

    def segformer() -> Any:
        model = typed("segformer", "SegformerForSemanticSegmentation", 3.0)
        processor = transformers.SegformerImageProcessorPil(size={"height": 64, "width": 64})
        return pipeline("image-segmentation", model=model, image_processor=processor)

    def depth() -> Any:
        model = typed("depth_anything", "DepthAnythingForDepthEstimation", 3.0)
        size = 2 * model.config.patch_size
        processor = transformers.DPTImageProcessorPil(size={"height": size, "width": size})
        return pipeline("depth-estimation", model=model, image_processor=processor)

    def owl() -> Any:
        text = {**TEXT_CONFIG, "max_position_embeddings": 16}
        config = transformers.OwlViTConfig(
            text_config=text, vision_config=_VISION, projection_dim=48
        )
        model = built("OwlViTForObjectDetection", config, factor=6.0)
        processor = transformers.OwlViTProcessor(
            transformers.OwlViTImageProcessorPil(size=_SQUARE, do_center_crop=False),
            pieces(model_max_length=16),
        )
        return pipeline(
            "zero-shot-object-detection",
            model=model,
            processor=processor,
            image_processor=processor.image_processor,
            tokenizer=processor.tokenizer,
        )

    labels = ["cat", "dog"]
    yield Case("object detection", "an image", lambda: piped(yolos(), photo()))
    yield Case("object detection", "threshold=0.1", lambda: piped(yolos(threshold=0.1), photo()))
    yield Case(
        "object detection",
        "a phone photo",
        lambda: piped(yolos(), str(phone_photo(new_folder()))),
    )
    yield Case("object detection", "a grey image", lambda: piped(yolos(), photo(mode="L")))
    yield Case("image segmentation", "an image", lambda: piped(segformer(), photo()))
    yield Case(
        "image segmentation",
        "a phone photo",
        lambda: piped(segformer(), str(phone_photo(new_folder()))),
    )
    yield Case("image segmentation", "subtask='semantic'", lambda: _subtask(segformer()))
    yield Case("image segmentation", "MaskFormer, subtask='panoptic'", _maskformer)
    yield Case("depth estimation", "an image", lambda: piped(depth(), photo()))
    yield Case(
        "depth estimation",
        "a phone photo",
        lambda: piped(depth(), str(phone_photo(new_folder()))),
    )
    yield Case(
        "zero-shot object detection",
        "two labels",
        lambda: named(owl(), image=photo(), candidate_labels=labels),
    )
    yield Case(
        "zero-shot object detection",
        "two labels, part=1",
        lambda: named(owl(), image=photo(), candidate_labels=labels, part=1),
    )
    yield Case(
        "zero-shot object detection",
        "a dict as the input",
        lambda: piped(owl(), {"image": photo(), "candidate_labels": labels}),
    )
    yield Case("mask generation", "an image (SAM)", _masks)
    yield Case("mask generation", "an image (SAM), part=3", lambda: _masks(3))
    yield Case("object detection", "DETR, images of two sizes", _detr)
    yield Case("zero-shot object detection", "Grounding DINO, all labels in a text", _grounding)
    yield Case("keypoint matching", "two images", _keypoints)


def _subtask(pipe: Any) -> Call:
    image = photo()
    return piped(
        pipe,
        {"inputs": image, "subtask": "semantic"},
        own=lambda: pipe(image, subtask="semantic"),
    )


def _maskformer() -> Call:
    model = typed("mask2former", "Mask2FormerForUniversalSegmentation", 2.0)
    processor = transformers.Mask2FormerImageProcessorPil(
        size={"height": 64, "width": 64}, ignore_index=255
    )
    pipe = pipeline(
        "image-segmentation", model=model, image_processor=processor, subtask="panoptic"
    )

    def own() -> None:
        # Random masks cannot be joined, but the forward has run.
        with contextlib.suppress(RuntimeError, ValueError, IndexError):
            pipe(photo())

    return piped(pipe, photo(), own=own)


def _detr() -> Call:
    model = typed("detr", "DetrForObjectDetection", 2.0)
    processor = transformers.DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96})
    pipe = pipeline("object-detection", model=model, image_processor=processor)
    return piped(pipe, [photo(), photo(64, 48)])


def _grounding() -> Call:
    model = typed("grounding-dino", "GroundingDinoForObjectDetection", 2.0)
    processor = transformers.GroundingDinoProcessor(
        transformers.GroundingDinoImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}),
        words(),
    )
    pipe = pipeline(
        "zero-shot-object-detection", model=model, processor=processor,
        image_processor=processor.image_processor, tokenizer=processor.tokenizer,
    )  # fmt: skip
    return named(
        pipe,
        image=photo(),
        candidate_labels=["cat", "dog"],
        expect={"error": "cannot be shown yet"},
    )


def _masks(part: int = 0) -> Call:
    model = typed("sam", "SamModel", 3.0)
    size = model.config.vision_config.image_size
    processor = transformers.SamImageProcessorPil(
        size={"longest_edge": size}, pad_size={"height": size, "width": size},
        mask_size={"longest_edge": size // 4},
        mask_pad_size={"height": size // 4, "width": size // 4},
    )  # fmt: skip
    pipe = pipeline("mask-generation", model=model, image_processor=processor, points_per_batch=4)

    def own() -> None:
        # The answer needs torchvision, the forwards do not.
        with contextlib.suppress(ImportError):
            pipe(photo())

    expect = {"error": "embedding|image|vision", "note": "vision|image|embedding"}
    return piped(pipe, photo(), own=own, part=part, expect=expect)


def _keypoints() -> Call:
    model = typed("superglue", "SuperGlueForKeypointMatching", 3.0)
    processor = transformers.SuperGlueImageProcessorPil(size={"height": 64, "width": 64})
    pipe = pipeline("keypoint-matching", model=model, image_processor=processor)
    # A list would be two examples.
    pair = (photo(), photo(40, 40))
    return piped(pipe, pair, own=lambda: pipe(list(pair)))


def zero_shot() -> Iterator[Case]:
    """Yield calls of zero-shot image classification."""

    def pipe(**settings: Any) -> Any:
        model, processor = clip()
        return pipeline(
            "zero-shot-image-classification", model=model, tokenizer=processor.tokenizer,
            image_processor=processor.image_processor, **settings,
        )  # fmt: skip

    labels = ["cat", "dog"]
    # The labels are the rows of one forward.
    rows = {"batch": True}
    for text, make in {
        "labels at the call": lambda: named(
            pipe(), image=photo(), candidate_labels=labels, expect=rows
        ),
        "hypothesis_template at the object": lambda: named(
            pipe(hypothesis_template="the {}"), image=photo(), candidate_labels=labels, expect=rows
        ),
        "hypothesis_template at the call": lambda: named(
            pipe(),
            image=photo(),
            candidate_labels=labels,
            hypothesis_template="the {}",
            expect=rows,
        ),
        "one label": lambda: named(pipe(), image=photo(), candidate_labels=["cat"]),
        "tokenizer_kwargs": lambda: named(
            pipe(),
            image=photo(),
            candidate_labels=labels,
            tokenizer_kwargs={"truncation": True, "max_length": 4},
            expect=rows,
        ),
        "SigLIP, whose texts are padded": _siglip,
        "a phone photo": lambda: named(
            pipe(), image=str(phone_photo(new_folder())), candidate_labels=labels, expect=rows
        ),
    }.items():
        yield Case("zero-shot image classification", text, make)


def _siglip() -> Call:
    text = {**TEXT_CONFIG, "max_position_embeddings": 64, "projection_size": 48}
    config = transformers.SiglipConfig(text_config=text, vision_config=_VISION)
    model = built("SiglipModel", config, factor=6.0)
    processor = transformers.SiglipImageProcessorPil(size=_SQUARE)
    pipe = pipeline(
        "zero-shot-image-classification", model=model, image_processor=processor,
        tokenizer=pieces(model_max_length=64),
    )  # fmt: skip
    expect = {"batch": True}
    return named(pipe, image=photo(), candidate_labels=["cat", "dog"], expect=expect)


def chats() -> Iterator[Case]:
    """Yield calls of image-text-to-text and any-to-any."""

    def pipe(task: str = "image-text-to-text", **settings: Any) -> Any:
        model, processor = llava()
        # any-to-any needs torchvision only for videos.
        with mock.patch("transformers.pipelines.any_to_any.requires_backends"):
            return pipeline(task, model=model, processor=processor, **settings)

    greedy = {"max_new_tokens": 4, "do_sample": False}

    def call(task: str, inputs: Any, own: Callable[[Any], Any] | None = None, **more: Any) -> Call:
        made = pipe(task, **more)
        return Call(
            made.model,
            lambda: own(made) if own else made(text=inputs, generate_kwargs=greedy),
            lambda: extract(made, inputs, generate=greedy, progress=False),
        )

    answered = [*image_chat(), {"role": "assistant", "content": [
        {"type": "text", "text": "the dog"}]}]  # fmt: skip
    for task in ("image-text-to-text", "any-to-any"):
        yield Case(task, "a chat with an image", partial(call, task, image_chat()))
        yield Case(task, "a chat that ends with the assistant", partial(call, task, answered))
        yield Case(
            task,
            "images= and text=",
            partial(
                call,
                task,
                {"images": [photo()], "text": "<image>the cat"},
                lambda made: made(images=[photo()], text="<image>the cat", generate_kwargs=greedy),
            ),
        )
        yield Case(
            task,
            "generate_kwargs at the call",
            partial(
                call,
                task,
                image_chat(),
                lambda made: made(text=image_chat(), generate_kwargs=greedy),
            ),
        )
    yield Case(
        "image-text-to-text",
        "two chats",
        lambda: call("image-text-to-text", [image_chat(), image_chat("a dog waited")]),
    )
    yield Case(
        "image-text-to-text",
        "a chat with two images",
        lambda: call("image-text-to-text", _two_images()),
    )
    yield Case(
        "image-text-to-text",
        "a chat without an image",
        lambda: call(
            "image-text-to-text",
            [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}],
        ),
    )
    yield Case(
        "image-text-to-text",
        "repetition_penalty at the object",
        lambda: call(
            "image-text-to-text",
            image_chat(),
            # Arguments of the call would replace those of the object.
            lambda made: made(text=image_chat()),
            generate_kwargs={"repetition_penalty": 5.0, **greedy},
        ),
    )
    yield Case(
        "image-text-to-text", "a pair (image, text)",
        lambda: call(
            "image-text-to-text", (photo(), "<image>the cat"),
            lambda made: made(images=[photo()], text="<image>the cat", generate_kwargs=greedy),
        ),
    )  # fmt: skip
    yield Case(
        "image-text-to-text",
        "continue_final_message=False",
        lambda: call(
            "image-text-to-text",
            answered,
            lambda made: made(text=answered, generate_kwargs=greedy, continue_final_message=False),
            continue_final_message=False,
        ),
    )


def _two_images() -> list[dict[str, Any]]:
    content = [
        {"type": "image", "image": photo()},
        {"type": "image", "image": photo(40, 40)},
        {"type": "text", "text": "the cat"},
    ]
    return [{"role": "user", "content": content}]


def documents() -> Iterator[Case]:
    """Yield calls of document question answering."""
    boxes = [[part, [40 * n, 40, 40 * n + 30, 80]] for n, part in enumerate(TEXT.split())]

    def layout(**settings: Any) -> Any:
        model = typed(
            "layoutlm",
            "LayoutLMForQuestionAnswering",
            3.0,
            vocab_size=400,
            max_2d_position_embeddings=1024,
            max_position_embeddings=512,
        )
        return pipeline(
            "document-question-answering",
            model=model,
            tokenizer=words(add_prefix_space=True),
            **settings,
        )

    def call(pipe: Any, part: int = 0, **arguments: Any) -> Call:
        given = {"image": photo(), "question": "the dog", "word_boxes": boxes, **arguments}
        return named(pipe, part=part, **given)

    for text, make in {
        "word_boxes": lambda: call(layout()),
        "word_boxes as the input": lambda: piped(
            layout(), {"image": photo(), "question": "the dog", "word_boxes": boxes}
        ),
        "max_seq_len and doc_stride": lambda: call(layout(max_seq_len=10, doc_stride=2)),
        "max_seq_len and doc_stride, part=1": lambda: call(
            layout(max_seq_len=10, doc_stride=2), part=1
        ),
        "Donut, which generates": _donut,
        "max_seq_len at the call": lambda: call(layout(), max_seq_len=10, doc_stride=2),
        "padding at the object": lambda: call(layout(padding="max_length", max_seq_len=40)),
    }.items():
        yield Case("document question answering", text, make)


def _donut() -> Call:
    encoder = transformers.DonutSwinConfig(
        image_size=[32, 32], patch_size=4, embed_dim=12, depths=[1, 1], num_heads=[2, 2],
        window_size=2,
    )  # fmt: skip
    decoder = transformers.MBartConfig(
        vocab_size=400, d_model=24, encoder_layers=2, decoder_layers=2, decoder_ffn_dim=32,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 0, 3
    processor = transformers.DonutImageProcessorPil(size=_SQUARE, do_align_long_axis=False)
    pipe = pipeline(
        "document-question-answering",
        model=built("VisionEncoderDecoderModel", config, factor=6.0),
        tokenizer=words(model_input_names=["input_ids", "attention_mask"]),
        image_processor=processor,
        feature_extractor=processor,
    )
    pipe.model.generation_config.max_new_tokens = 3
    arguments = {"image": photo(), "question": "the dog"}

    def own() -> None:
        # The tiny model writes no answer that can be parsed.
        with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
            pipe(**arguments)

    return piped(pipe, arguments, own=own, generate={"max_new_tokens": 3})


def videos() -> Iterator[Case]:
    """Yield a call of video classification, whose reader of files may not be installed."""
    yield Case("video classification", "a file", _video)


def _video() -> Call:
    model = typed("vivit", "VivitForVideoClassification", 2.0)
    pipe = pipeline("video-classification", model=model)
    return piped(pipe, str(new_folder() / "video.mp4"))


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    for group in (classification, features, regions, zero_shot, chats, documents, videos):
        yield from group()
