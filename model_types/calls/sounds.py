"""Calls of pipelines that read or make sounds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from transformers import pipeline

from attnviz import extract
from model_types.calls.generations import whisper_processor
from model_types.calls.judge import Call, Case
from model_types.calls.parts import TEXT, pieces, sound, typed, whisper, whisper_features, words
from model_types.calls.texts import named, piped
from models.tiny import SIZE, built

_RATE = 16_000


def wav2vec2(head: str, **settings: Any) -> Any:
    """Return a tiny Wav2Vec2."""
    config = {
        **SIZE, "vocab_size": 30, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer", "num_labels": 3,
        "pad_token_id": 0,
    }  # fmt: skip
    return built(f"Wav2Vec2{head}", {**config, **settings}, factor=20.0)


def _extractor(**settings: Any) -> Any:
    return transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True, **settings)


def classification() -> Iterator[Case]:
    """Yield calls of audio classification."""

    def pipe(extractor: Any = None, **settings: Any) -> Any:
        return pipeline(
            "audio-classification", model=wav2vec2("ForSequenceClassification"),
            feature_extractor=extractor or _extractor(), **settings,
        )  # fmt: skip

    slow = {"raw": sound(0.5, 8000), "sampling_rate": 8000}
    for text, make in {
        "an array": lambda: piped(pipe(), sound(0.5)),
        "top_k=1": lambda: piped(pipe(top_k=1), sound(0.5)),
        "do_normalize=False in the extractor": lambda: piped(
            pipe(_extractor(do_normalize=False)), sound(0.5)
        ),
        "another sampling rate": lambda: piped(pipe(), slow, own=lambda: pipe()(dict(slow))),
        "a list of two sounds": lambda: piped(pipe(), [sound(0.5), sound(0.3)]),
        "a dict with array": lambda: piped(pipe(), {"array": sound(0.5), "sampling_rate": _RATE}),
    }.items():
        yield Case("audio classification", text, make)
    yield Case("audio classification", "Whisper's encoder", _whisper_classifier)
    yield Case("audio classification", "AST, whose sound is cut or padded", _spectrogram)


def _whisper_classifier() -> Call:
    base = whisper()
    model = transformers.WhisperForAudioClassification(base.config).eval()
    pipe = pipeline("audio-classification", model=model, feature_extractor=whisper_features())
    return piped(pipe, sound(0.6))


def _spectrogram() -> Call:
    model = typed("audio-spectrogram-transformer", "ASTForAudioClassification", 3.0, num_labels=3)
    extractor = transformers.ASTFeatureExtractor(
        num_mel_bins=model.config.num_mel_bins, max_length=model.config.max_length
    )
    pipe = pipeline("audio-classification", model=model, feature_extractor=extractor)
    return piped(pipe, sound(0.5))


def _ctc(**settings: Any) -> Any:
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4}
    vocabulary |= {letter: number for number, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXY", 5)}
    backend = transformers.Wav2Vec2CTCTokenizer
    tokenizer = _ctc_tokenizer(backend, vocabulary)
    return pipeline(
        "automatic-speech-recognition", model=wav2vec2("ForCTC"), tokenizer=tokenizer,
        feature_extractor=_extractor(), **settings,
    )  # fmt: skip


def _ctc_tokenizer(maker: Any, vocabulary: dict[str, int]) -> Any:
    import json
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps(vocabulary))
        return maker(str(path))


def _speech(**settings: Any) -> Any:
    processor = whisper_processor()
    return pipeline(
        "automatic-speech-recognition", model=settings.pop("model", None) or whisper(),
        tokenizer=processor.tokenizer, feature_extractor=processor.feature_extractor, **settings,
    )  # fmt: skip


def recognition() -> Iterator[Case]:
    """Yield calls of speech recognition."""

    def case(text: str, make: Callable[[], Call]) -> Case:
        return Case("speech recognition, CTC", text, make)

    slow = {"raw": sound(0.9, 8000), "sampling_rate": 8000}
    striding = {"raw": sound(0.9), "sampling_rate": _RATE, "stride": (1600, 1600)}
    yield case("an array", lambda: piped(_ctc(), sound(0.5)))
    yield case(
        "return_timestamps='char'", lambda: piped(_ctc(return_timestamps="char"), sound(0.5))
    )
    yield case("chunk_length_s=1", lambda: piped(_ctc(chunk_length_s=1.0), sound(2.5)))
    yield case(
        "chunk_length_s=1, part=1", lambda: piped(_ctc(chunk_length_s=1.0), sound(2.5), part=1)
    )
    yield case(
        "chunk_length_s=1, stride_length_s=0.2, part=2",
        lambda: piped(_ctc(chunk_length_s=1.0, stride_length_s=0.2), sound(2.5), part=2),
    )
    yield case("another sampling rate", lambda: _fresh(_ctc(), slow))
    yield case("a stride in the dict", lambda: _fresh(_ctc(), striding))
    yield case(
        "chunk_length_s at the call",
        lambda: named(_ctc(), inputs=sound(2.5), chunk_length_s=1.0),
    )

    kwargs = {"max_new_tokens": 4}

    def call(
        pipe: Any, generate: Any = None, inputs: Any = None, part: int = 0, expect: Any = None
    ) -> Call:
        given = sound(0.9) if inputs is None else inputs

        def own() -> Any:
            # The pipeline removes the entries of a dict.
            return pipe(dict(given) if isinstance(given, dict) else given)

        return piped(pipe, given, own=own, part=part, expect=expect, generate=generate or kwargs)

    german = {**kwargs, "language": "de", "task": "translate"}
    for text, make in {
        "an array": lambda: call(_speech(generate_kwargs=kwargs)),
        "language and task at the object": lambda: call(_speech(generate_kwargs=german)),
        # The pipeline searches with five beams by default. A number means greedily, says a note.
        "language and task at the object, a number as generate": lambda: call(
            _speech(generate_kwargs={**german, "num_beams": 1}), 4
        ),
        "a number as generate": lambda: call(
            _speech(generate_kwargs=kwargs), 4, expect={"note": "greedily"}
        ),
        "return_timestamps=True": lambda: call(
            _speech(return_timestamps=True, generate_kwargs=kwargs)
        ),
        "repetition_penalty at the object": lambda: call(
            _speech(generate_kwargs={**kwargs, "repetition_penalty": 5.0})
        ),
        "num_beams=3 at the object": lambda: call(
            _speech(generate_kwargs={**kwargs, "num_beams": 3})
        ),
        "chunk_length_s=1": lambda: call(
            _speech(chunk_length_s=1.0, generate_kwargs=kwargs), inputs=sound(2.5)
        ),
        "chunk_length_s=1, part=2": lambda: call(
            _speech(chunk_length_s=1.0, generate_kwargs=kwargs), inputs=sound(2.5), part=2
        ),
        "another sampling rate": lambda: call(_speech(generate_kwargs=kwargs), inputs=slow),
        "a sound longer than the window": lambda: call(
            _speech(return_timestamps=True, generate_kwargs={**kwargs, "num_beams": 1}),
            inputs=sound(2.5),
            expect={"required": "window|second|longer|cut|left out|part"},
        ),
        "without generate": lambda: piped(
            _speech(generate_kwargs=kwargs), sound(0.9), expect={"error": "generate=|target"}
        ),
    }.items():
        yield Case("speech recognition, Whisper", text, make)
    yield Case("speech recognition, Whisper", "language in generate", _in_generate)
    yield Case("target", "a pipeline of Whisper with language and task", _spoken_target)


def _spoken_target() -> Call:
    """Return a call whose decoder must start as the pipeline starts it."""
    settings = {"max_new_tokens": 4, "language": "de", "task": "translate", "num_beams": 1}
    pipe = _speech(generate_kwargs=settings)
    tokenizer = pipe.tokenizer
    start = ["<|startoftranscript|>", "<|de|>", "<|translate|>", "<|notimestamps|>"]
    ids = tokenizer.convert_tokens_to_ids(start)
    ids += tokenizer("the dog", add_special_tokens=False)["input_ids"]
    features = pipe.feature_extractor(sound(0.9), sampling_rate=_RATE, return_tensors="pt")
    return Call(
        pipe.model,
        lambda: pipe.model(**features, decoder_input_ids=torch.tensor([ids])),
        lambda: extract(pipe, sound(0.9), target="the dog", progress=False),
        note="language|task|start",
    )


def _in_generate() -> Call:
    pipe = _speech()
    settings = {"max_new_tokens": 4, "language": "de"}
    return piped(
        pipe,
        sound(0.9),
        own=lambda: pipe(sound(0.9), generate_kwargs=dict(settings)),
        generate=settings,
    )


def _fresh(pipe: Any, inputs: dict[str, Any]) -> Call:
    """Return a call whose dict is copied, because the pipeline removes its entries."""
    return Call(
        pipe.model,
        lambda: pipe(dict(inputs)),
        lambda: extract(pipe, dict(inputs), progress=False),
    )


def others() -> Iterator[Case]:
    """Yield calls of zero-shot audio classification and of text to audio."""

    def clap(**settings: Any) -> Any:
        model = typed("clap", "ClapModel", 1.0, text_config={"vocab_size": 400})
        audio = model.config.audio_config
        extractor = transformers.ClapFeatureExtractor(
            feature_size=audio.num_mel_bins, sampling_rate=48_000, max_length_s=1,
            truncation="rand_trunc", padding="repeat",
        )  # fmt: skip
        return pipeline(
            "zero-shot-audio-classification", model=model, tokenizer=pieces(),
            feature_extractor=extractor, **settings,
        )  # fmt: skip

    labels = ["cat", "dog"]
    # The labels are the rows of one forward.
    rows = {"batch": True}
    yield Case(
        "zero-shot audio classification",
        "labels at the call",
        lambda: named(clap(), audios=sound(1, 48_000), candidate_labels=labels, expect=rows),
    )
    yield Case(
        "zero-shot audio classification",
        "labels at the object",
        lambda: piped(clap(candidate_labels=labels), sound(1, 48_000), expect=rows),
    )
    yield Case(
        "zero-shot audio classification",
        "hypothesis_template at the object",
        lambda: piped(
            clap(candidate_labels=labels, hypothesis_template="the {}"),
            sound(1, 48_000),
            expect=rows,
        ),
    )

    def vits(**settings: Any) -> Any:
        model = typed("vits", "VitsModel", 2.0, vocab_size=400)
        return pipeline("text-to-audio", model=model, tokenizer=words(), **settings)

    yield Case("text to audio", "VITS", lambda: piped(vits(), TEXT))
    yield Case(
        "text to audio",
        "VITS with forward_params",
        lambda: piped(vits(forward_params={"speaking_rate": 2.0}), TEXT),
    )
    yield Case("text to audio", "SpeechT5, which has its own loop", _speecht5)
    yield Case("text to audio", "MusicGen, which generates codes", _musicgen)


def _speecht5() -> Call:
    model = typed("speecht5", "SpeechT5ForTextToSpeech", 2.0, vocab_size=400)
    pipe = pipeline(
        "text-to-audio",
        model=model,
        tokenizer=words(model_input_names=["input_ids", "attention_mask"]),
        vocoder=typed("speecht5_hifigan", "SpeechT5HifiGan", 1.0),
    )
    speaker = torch.zeros(1, model.config.speaker_embedding_dim)
    arguments = {"text_inputs": TEXT, "forward_params": {"speaker_embeddings": speaker}}
    return piped(pipe, arguments, own=lambda: pipe(**arguments), expect={"required": "."})


def _musicgen() -> Call:
    size = 64
    ids = {"vocab_size": size, "pad_token_id": size, "bos_token_id": size}
    model = typed("musicgen", "MusicgenForConditionalGeneration", 2.0, decoder=ids)
    for name in ("decoder_start_token_id", "pad_token_id", "bos_token_id"):
        setattr(model.generation_config, name, size)
    tokenizer = words(model_input_names=["input_ids", "attention_mask"])
    pipe = pipeline(
        "text-to-audio", model=model, tokenizer=tokenizer, generate_kwargs={"max_new_tokens": 5}
    )

    def own() -> None:
        # The tiny decoder of sounds does not fit. The forwards ran before.
        with contextlib.suppress(RuntimeError):
            pipe(TEXT)

    return piped(pipe, TEXT, own=own, expect={"error": "generate|decoder|target"})


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    yield from classification()
    yield from recognition()
    yield from others()
