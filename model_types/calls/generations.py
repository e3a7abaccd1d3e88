"""Calls of a model's ``generate`` with its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers

from attnviz import extract
from model_types.calls.judge import Call, Case
from model_types.calls.parts import (
    TEXT,
    bart,
    ending,
    gpt2,
    llama,
    photo,
    pieces,
    sound,
    t5,
    whisper,
    whisper_features,
    whisper_tokenizer,
)
from models.tiny import built

_COUNT = 6


def generated(
    model: Any,
    inputs: dict[str, Any],
    settings: dict[str, Any] | None = None,
    *,
    own_more: dict[str, Any] | None = None,
    given: Any = None,
    expect: dict[str, Any] | None = None,
    **options: Any,
) -> Call:
    """Return a call of ``model.generate``, whose settings `extract` gets as `generate`.

    `own_more` are further arguments of the own call, such as its tokenizer. `given` are the inputs
    of `extract` if they are not those of the own call.
    """
    settings = {"max_new_tokens": _COUNT, "do_sample": False, **(settings or {})}
    return Call(
        model,
        lambda: model.generate(**inputs, **settings, **(own_more or {})),
        lambda: extract(
            model, inputs if given is None else given, generate=settings, progress=False, **options
        ),
        **(expect or {}),
    )


def _prompt(tokenizer: Any = None) -> dict[str, Any]:
    return dict((tokenizer or pieces())(TEXT, return_tensors="pt"))


def decoders() -> Iterator[Case]:
    """Yield calls of decoder-only models."""

    def call(settings: dict[str, Any], model: Any = None, **options: Any) -> Call:
        return generated(model or gpt2(), _prompt(), settings, tokenizer=pieces(), **options)

    def configured(**settings: Any) -> Any:
        model = gpt2()
        model.generation_config.update(**settings)
        return model

    def word() -> str:
        tokenizer, model = pieces(), gpt2()
        output = model.generate(**_prompt(), max_new_tokens=1, do_sample=False)
        text: str = tokenizer.decode(output[0, -1:])
        return text

    repeated = [[number] for number in range(10, 300)]
    for text, make in {
        "greedy": lambda: call({}),
        "num_beams=3": lambda: call({"num_beams": 3}),
        "num_beams=3, length_penalty, early_stopping": lambda: call(
            {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True}
        ),
        "num_beams=4, num_return_sequences=2": lambda: call(
            {"num_beams": 4, "num_return_sequences": 2},
            expect={"error": "num_return_sequences|sequences"},
        ),
        "sampling": lambda: call({"do_sample": True, "temperature": 0.8}),
        "num_return_sequences=2 by sampling": lambda: call(
            {"do_sample": True, "num_return_sequences": 2},
            expect={"error": "num_return_sequences|sequences"},
        ),
        "repetition_penalty": lambda: call({"repetition_penalty": 5.0}),
        "repetition_penalty in the generation config": lambda: call(
            {}, configured(repetition_penalty=5.0)
        ),
        "no_repeat_ngram_size": lambda: call({"no_repeat_ngram_size": 1}),
        "bad_words_ids": lambda: call({"bad_words_ids": repeated}),
        "suppress_tokens": lambda: call({"suppress_tokens": list(range(10, 300))}),
        "min_new_tokens": lambda: call({"min_new_tokens": 6}),
        "min_length in the generation config": lambda: call({}, configured(min_length=24)),
        "forced_bos_token_id": lambda: call({"forced_bos_token_id": 33}),
        "forced_eos_token_id": lambda: call({"forced_eos_token_id": 2}),
        "sequence_bias": lambda: call({"sequence_bias": [[[44], 90.0]]}),
        "a GenerationConfig": lambda: _with_config(gpt2()),
        "stop_strings": lambda: call({"stop_strings": [word()]}, own_more={"tokenizer": pieces()}),
        "stop_strings in the generation config": lambda: call(
            {}, configured(stop_strings=[word()]), own_more={"tokenizer": pieces()}
        ),
        "max_length instead of max_new_tokens": lambda: call(
            {"max_length": 20, "max_new_tokens": None}
        ),
        "eos_token_id that comes soon": lambda: call({"eos_token_id": 242}),
        "a logits processor": lambda: call({"logits_processor": _forbidding(324)}),
        "prompt_lookup_num_tokens": lambda: call({"prompt_lookup_num_tokens": 2}),
        "cache_implementation='static'": lambda: call({"cache_implementation": "static"}, llama()),
        "use_cache=False": lambda: call({"use_cache": False}),
        "an assistant model": lambda: call({"assistant_model": llama()}, llama()),
        "guidance_scale": lambda: call({"guidance_scale": 1.5}, llama()),
        "Llama": lambda: call({}, llama()),
        "return_dict_in_generate and output_scores": lambda: call(
            {"return_dict_in_generate": True, "output_scores": True}
        ),
        "prefix_allowed_tokens_fn": lambda: call(
            {"prefix_allowed_tokens_fn": lambda *_: list(range(10, 40))}
        ),
        "a prompt of embeddings": _embedded,
        "top_k and top_p by sampling": lambda: call(
            {"do_sample": True, "top_k": 5, "top_p": 0.9, "min_p": 0.01}
        ),
        "renormalize_logits and typical_p": lambda: call(
            {"do_sample": True, "typical_p": 0.8, "renormalize_logits": True}
        ),
        "exponential_decay_length_penalty": lambda: call(
            {"exponential_decay_length_penalty": (2, 50.0), "eos_token_id": 44}
        ),
        "min_length as an argument": lambda: call({"min_length": 21, "eos_token_id": 242}),
        "max_time": lambda: call({"max_time": 60.0}),
        "a compiled model": _compiled,
        "a watermark": lambda: call(
            {"watermarking_config": transformers.WatermarkingConfig(bias=9.0)}
        ),
        "Mistral with a sliding window": lambda: call(
            {}, _small("MistralForCausalLM", num_key_value_heads=2, sliding_window=5)
        ),
        "left padding, Llama, one row": lambda: _padded(llama()),
        "left padding, GPT-2, one row": lambda: _padded(gpt2()),
        "left padding, GPT-2, the text twice": lambda: _padded_batch(gpt2()),
        "left padding, Llama, two texts": lambda: _padded_batch(llama()),
        "a text that attnviz encodes": lambda: generated(
            gpt2(), _prompt(), {"repetition_penalty": 5.0}, given=TEXT, tokenizer=pieces()
        ),
    }.items():
        yield Case("generate, decoder-only", text, make)


def _small(name: str, **settings: Any) -> Any:
    from model_types.calls.parts import model_of

    return model_of(name, 8.0, **settings)


def _forbidding(token: int) -> Any:
    def process(ids: Any, scores: torch.Tensor) -> torch.Tensor:
        del ids
        scores[:, token] = -torch.inf
        return scores

    return transformers.LogitsProcessorList([process])


def _with_config(model: Any) -> Call:
    config = transformers.GenerationConfig(
        max_new_tokens=_COUNT, repetition_penalty=5.0, pad_token_id=0, eos_token_id=2
    )
    inputs = _prompt()
    return Call(
        model,
        lambda: model.generate(**inputs, generation_config=config),
        lambda: extract(model, inputs, generate=config, tokenizer=pieces(), progress=False),
    )


def _embedded() -> Call:
    model = llama()
    vectors = model.get_input_embeddings()(torch.arange(8, 20)[None]).detach()
    return generated(model, {"inputs_embeds": vectors}, expect={"error": "inputs_embeds|input_ids"})


def _compiled() -> Call:
    model = gpt2()
    compiled: Any = torch.compile(model, backend="eager")
    inputs, settings = _prompt(), {"max_new_tokens": 4, "repetition_penalty": 5.0}
    return Call(
        model,
        lambda: model.generate(**inputs, **settings),
        lambda: extract(compiled, inputs, generate=settings, tokenizer=pieces(), progress=False),
    )


def _padded(model: Any) -> Call:
    tokenizer = pieces(padding_side="left")
    inputs = dict(tokenizer(TEXT, padding="max_length", max_length=24, return_tensors="pt"))
    return generated(model, inputs, tokenizer=tokenizer)


def _padded_batch(model: Any) -> Call:
    tokenizer = pieces(padding_side="left")
    inputs = dict(tokenizer([TEXT, "the cat sat"], padding=True, return_tensors="pt"))
    own = [dict(tokenizer(text, return_tensors="pt")) for text in (TEXT, "the cat sat")]
    settings = {"max_new_tokens": 4, "do_sample": False}
    # A row of a batch is generated like its text alone, which has positions without padding.
    return Call(
        model,
        lambda: [model.generate(**one, **settings) for one in own],
        lambda: extract(model, inputs, generate=settings, tokenizer=tokenizer, progress=False),
    )


def _translated(maker: Callable[[], Any], settings: dict[str, Any], **options: Any) -> Call:
    tokenizer = ending()
    return generated(maker(), _prompt(tokenizer), settings, tokenizer=tokenizer, **options)


def translators() -> Iterator[Case]:
    """Yield calls of encoder-decoder models that read texts."""

    def call(settings: dict[str, Any], model: Any = None, **options: Any) -> Call:
        return _translated(lambda: model or bart(), settings, **options)

    of_both: dict[str, dict[str, Any]] = {
        "greedy": {},
        "num_beams=3": {"num_beams": 3},
        "forced_bos_token_id": {"forced_bos_token_id": 33},
        "forced_eos_token_id": {"forced_eos_token_id": 2},
        "repetition_penalty": {"repetition_penalty": 5.0},
        "no_repeat_ngram_size and beams": {"no_repeat_ngram_size": 1, "num_beams": 2},
        "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
        "min_new_tokens": {"min_new_tokens": 6},
        "decoder_start_token_id": {"decoder_start_token_id": 41},
        "bad_words_ids": {"bad_words_ids": [[number] for number in range(10, 200)]},
    }
    for name, maker in (("T5", t5), ("BART", bart)):
        for text, settings in of_both.items():
            yield Case(f"generate, {name}", text, partial(_translated, maker, settings))
    yield Case(
        "generate, BART",
        "decoder_input_ids as a start",
        lambda: _started(bart(), torch.tensor([[2, 60, 61]])),
    )
    yield Case(
        "generate, BART",
        "decoder_input_ids without the start token",
        lambda: _started(bart(), torch.tensor([[60, 61]])),
    )
    yield Case(
        "generate, BART",
        "forced_bos_token_id in the generation config (as in mBART)",
        lambda: call({}, _forced(bart())),
    )
    yield Case(
        "generate, BART",
        "forced_bos_token_id and beams, a text that attnviz encodes",
        lambda: generated(
            bart(),
            _prompt(ending()),
            {"forced_bos_token_id": 33, "num_beams": 3},
            given=TEXT,
            tokenizer=ending(),
        ),
    )
    yield Case(
        "generate, BART",
        "num_return_sequences=2",
        lambda: call(
            {"num_beams": 3, "num_return_sequences": 2},
            expect={"error": "num_return_sequences|sequences"},
        ),
    )
    yield Case("generate, BART", "two rows of a batch", lambda: _rows(bart))
    yield Case("generate, T5", "two rows of a batch", lambda: _rows(t5))
    yield Case("generate, M2M100", "a language by forced_bos_token_id", _translator)
    yield Case(
        "generate, BART",
        "decoder_start_token_id as a list",
        lambda: call({"decoder_start_token_id": [41]}),
    )
    yield Case("generate, T5", "prefix in the pipeline's call", _summary)


def _rows(maker: Callable[[], Any]) -> Call:
    model, tokenizer = maker(), ending()
    inputs = dict(tokenizer([TEXT, "the cat sat"], padding=True, return_tensors="pt"))
    alone = [dict(tokenizer(text, return_tensors="pt")) for text in (TEXT, "the cat sat")]
    settings = {"max_new_tokens": 4, "do_sample": False, "repetition_penalty": 5.0}
    return Call(
        model,
        lambda: [model.generate(**one, **settings) for one in alone],
        lambda: extract(model, inputs, generate=settings, tokenizer=tokenizer, progress=False),
    )


def _translator() -> Call:
    model, tokenizer = bart("M2M100ForConditionalGeneration"), ending()
    settings = {"forced_bos_token_id": 33, "num_beams": 2, "max_new_tokens": 4}
    inputs = _prompt(tokenizer)
    return Call(
        model,
        lambda: model.generate(**inputs, **settings),
        lambda: extract(model, TEXT, generate=settings, tokenizer=tokenizer, progress=False),
    )


def _summary() -> Call:
    """Return a call of T5 with the task prefix that its configuration names."""
    model, tokenizer = t5(), ending()
    text = f"translate this: {TEXT}"
    return generated(
        model, dict(tokenizer(text, return_tensors="pt")), given=text, tokenizer=tokenizer
    )


def _forced(model: Any) -> Any:
    model.generation_config.forced_bos_token_id = 45
    return model


def _started(model: Any, ids: torch.Tensor) -> Call:
    inputs, settings = _prompt(ending()), {"max_new_tokens": 4, "do_sample": False}
    return Call(
        model,
        lambda: model.generate(**inputs, decoder_input_ids=ids, **settings),
        lambda: extract(
            model,
            inputs,
            decoder_input_ids=ids,
            generate=settings,
            tokenizer=ending(),
            progress=False,
        ),
    )


def targets() -> Iterator[Case]:
    """Yield calls with a target, whose ids the decoder must get with one start token."""

    def labelled(maker: Callable[[], Any]) -> Call:
        model, tokenizer = maker(), ending()
        labels = tokenizer(text_target="the dog sat", return_tensors="pt")["input_ids"]
        inputs = _prompt(tokenizer)
        return Call(
            model,
            lambda: model(**inputs, labels=labels),
            lambda: extract(model, TEXT, tokenizer=tokenizer, target="the dog sat", progress=False),
        )

    def spoken() -> Call:
        model, processor = whisper(), whisper_processor()
        features = processor(sound(0.9), sampling_rate=16_000, return_tensors="pt")
        # The tokenizer of Whisper adds the start token itself.
        ids = processor.tokenizer("the dog sat", return_tensors="pt")["input_ids"][:, :-1]
        return Call(
            model,
            lambda: model(**features, decoder_input_ids=ids),
            lambda: extract(
                model, sound(0.9), processor=processor, target="the dog sat", progress=False
            ),
        )

    yield Case("target", "T5", lambda: labelled(t5))
    yield Case("target", "BART", lambda: labelled(bart))
    yield Case("target", "Whisper", spoken)


def whisper_processor() -> Any:
    """Return a processor of a tiny Whisper."""
    return transformers.WhisperProcessor(whisper_features(), whisper_tokenizer())


def speech() -> Iterator[Case]:
    """Yield calls of Whisper's generate."""

    def call(
        settings: dict[str, Any], seconds: float = 0.9, expect: Any = None, model: Any = None
    ) -> Call:
        processor = whisper_processor()
        features = processor(sound(seconds), sampling_rate=16_000, return_tensors="pt")
        return generated(
            model or whisper(),
            dict(features),
            {"max_new_tokens": 4, **settings},
            processor=processor,
            expect=expect,
        )

    def prompted() -> Call:
        return call({"prompt_ids": torch.tensor([300, 20, 21])})

    def configured(**settings: Any) -> Any:
        model = whisper()
        for name, value in settings.items():
            setattr(model.generation_config, name, value)
        return model

    for text, make in {
        "greedy": lambda: call({}),
        "language": lambda: call({"language": "de"}),
        "language and task": lambda: call({"language": "de", "task": "translate"}),
        "task": lambda: call({"task": "translate"}),
        "language in the generation config": lambda: call(
            {}, model=configured(language="de", task="translate")
        ),
        "return_timestamps": lambda: call({"return_timestamps": True}),
        "return_timestamps and language": lambda: call(
            {"return_timestamps": True, "language": "de"}
        ),
        "num_beams=3": lambda: call({"num_beams": 3}),
        "num_beams=3, language and task": lambda: call(
            {"num_beams": 3, "language": "de", "task": "translate"}
        ),
        "prompt_ids": prompted,
        "prompt_ids and language": lambda: call(
            {"prompt_ids": torch.tensor([300, 20, 21]), "language": "de"}
        ),
        "temperature as a tuple": lambda: call(
            {
                "temperature": (0.0, 0.4),
                "logprob_threshold": -1.0,
                "compression_ratio_threshold": 1.35,
                "return_timestamps": True,
            }
        ),
        "repetition_penalty": lambda: call({"repetition_penalty": 5.0}),
        "return_token_timestamps": lambda: call(
            {"return_token_timestamps": True, "language": "de"}
        ),
        "begin_suppress_tokens": lambda: call({"begin_suppress_tokens": [301, 189]}),
        "condition_on_prev_tokens and prompt_ids": lambda: call(
            {
                "condition_on_prev_tokens": True,
                "prompt_ids": torch.tensor([300, 20, 21]),
                "return_timestamps": True,
                "prompt_condition_type": "all-segments",
            }
        ),
        "sampling": lambda: call({"do_sample": True, "temperature": 0.9, "language": "en"}),
        "an English model, without language and task": lambda: call({}, model=_english()),
        "decoder_input_ids as a start": _spoken_start,
        "forced_eos and min_new_tokens with beams": lambda: call(
            {"num_beams": 2, "min_new_tokens": 3, "language": "de", "task": "transcribe"}
        ),
        "suppress_tokens": lambda: call({"suppress_tokens": list(range(20, 200))}),
        "a sound longer than the window": _long_sound,
    }.items():
        yield Case("generate, Whisper", text, make)


def _english() -> Any:
    model = whisper()
    for name in ("lang_to_id", "task_to_id"):
        delattr(model.generation_config, name)
    model.generation_config.is_multilingual = False
    return model


def _spoken_start() -> Call:
    model, processor = whisper(), whisper_processor()
    features = dict(processor(sound(0.9), sampling_rate=16_000, return_tensors="pt"))
    ids = processor.tokenizer("the dog", return_tensors="pt")["input_ids"][:, :-1]
    settings = {"max_new_tokens": 4, "do_sample": False}
    return Call(
        model,
        lambda: model.generate(**features, decoder_input_ids=ids, **settings),
        lambda: extract(
            model,
            features,
            decoder_input_ids=ids,
            generate=settings,
            processor=processor,
            progress=False,
        ),
    )


def _long_sound() -> Call:
    model, processor = whisper(), whisper_processor()
    options = {"sampling_rate": 16_000, "return_tensors": "pt"}
    features = dict(processor(sound(2.5), **options))
    settings = {"max_new_tokens": 4, "do_sample": False}
    return Call(
        model,
        lambda: model.generate(**features, **settings),
        lambda: extract(model, sound(2.5), processor=processor, generate=settings, progress=False),
        required="window|second|longer|keeps|left out",
    )


def captioner() -> tuple[Any, Any]:
    """Return a tiny VisionEncoderDecoder and its image processor."""
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=32,
            patch_size=8,
        ),
        transformers.BertConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            vocab_size=400,
            max_position_embeddings=64,
        ),
    )
    config.decoder_start_token_id, config.pad_token_id = 2, 0
    config.eos_token_id = 3
    model = built("VisionEncoderDecoderModel", config, factor=8.0)
    model.generation_config.update(decoder_start_token_id=2, pad_token_id=0, eos_token_id=3)
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    return model, processor


def images() -> Iterator[Case]:
    """Yield calls of models that write about images."""

    def call(settings: dict[str, Any]) -> Call:
        model, processor = captioner()
        inputs = dict(processor(photo(), return_tensors="pt"))
        return generated(model, inputs, settings)

    of_captions: dict[str, dict[str, Any]] = {
        "greedy": {},
        "num_beams=3": {"num_beams": 3},
        "forced_bos_token_id": {"forced_bos_token_id": 33},
        "repetition_penalty": {"repetition_penalty": 5.0},
        "bad_words_ids": {"bad_words_ids": [[number] for number in range(10, 200)]},
    }
    for text, settings in of_captions.items():
        yield Case("generate, VisionEncoderDecoder", text, partial(call, settings))

    from model_types.calls.images import image_chat, llava

    def chat(settings: dict[str, Any]) -> Call:
        model, processor = llava()
        inputs = processor.apply_chat_template(
            image_chat(), add_generation_prompt=True, tokenize=True, return_dict=True,
            return_tensors="pt",
        )  # fmt: skip
        return generated(model, dict(inputs), settings, processor=processor)

    of_chats: dict[str, dict[str, Any]] = {
        "greedy": {},
        "num_beams=2": {"num_beams": 2},
        "repetition_penalty": {"repetition_penalty": 5.0},
        "bad_words_ids": {"bad_words_ids": [[number] for number in range(10, 250)]},
    }
    for text, settings in of_chats.items():
        yield Case("generate, LLaVA", text, partial(chat, settings))

    def whole_chat() -> Call:
        model, processor = llava()
        inputs = processor.apply_chat_template(
            image_chat(), add_generation_prompt=True, tokenize=True, return_dict=True,
            return_tensors="pt",
        )  # fmt: skip
        return generated(
            model,
            dict(inputs),
            {"repetition_penalty": 5.0},
            given=image_chat(),
            processor=processor,
        )

    yield Case("generate, LLaVA", "a chat that attnviz encodes", whole_chat)


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    yield from decoders()
    yield from translators()
    yield from targets()
    yield from speech()
    yield from images()
