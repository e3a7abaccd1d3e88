"""Calls of pipelines that read texts, and of tokenizers with a model."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import processors
from transformers import pipeline

from attnviz import extract
from model_types.calls.judge import Call, Case
from model_types.calls.parts import (
    LONG,
    PAIR,
    TEXT,
    bart,
    bert,
    ending,
    gpt2,
    llama,
    model_of,
    new_folder,
    pieces,
    t5,
    typed,
    words,
)


def piped(
    pipe: Any,
    inputs: Any,
    *,
    own: Callable[[], Any] | None = None,
    expect: Mapping[str, Any] | None = None,
    part: int = 0,
    **options: Any,
) -> Call:
    """Return the call of a pipeline with `inputs`, which `extract` gets, too.

    If `inputs` is a dictionary of arguments of the pipeline, pass `own`, which calls it.
    `expect` has further attributes of `Call`, and `options` are arguments of `extract`.
    """
    if part:
        options["part"] = part

    def shown() -> Any:
        return extract(pipe, inputs, progress=False, **options)

    return Call(pipe.model, own or (lambda: pipe(inputs)), shown, part=part, **(expect or {}))


def named(pipe: Any, *, part: int = 0, expect: Any = None, **arguments: Any) -> Call:
    """Return the call of a pipeline with keyword arguments, which `extract` gets as a dict."""
    return piped(pipe, arguments, own=lambda: pipe(**arguments), part=part, expect=expect)


def _classifier(tokenizer: Any = None, **settings: Any) -> Any:
    model = bert("ForSequenceClassification")
    return pipeline("text-classification", model=model, tokenizer=tokenizer or words(), **settings)


def _tagger(**settings: Any) -> Any:
    tokenizer = settings.pop("tokenizer", None) or words()
    model = bert("ForTokenClassification")
    return pipeline("token-classification", model=model, tokenizer=tokenizer, **settings)


def classification() -> Iterator[Case]:
    """Yield calls of text classification."""

    def case(text: str, make: Callable[[], Call]) -> Case:
        return Case("text classification", text, make)

    yield case("one text", lambda: piped(_classifier(), TEXT))
    yield case(
        "truncation=True, max_length=5 at the object",
        lambda: piped(_classifier(truncation=True, max_length=5), TEXT),
    )
    yield case(
        "truncation=True with model_max_length=6",
        lambda: piped(_classifier(words(model_max_length=6), truncation=True), TEXT),
    )
    yield case(
        "padding='max_length', max_length=20",
        lambda: piped(_classifier(padding="max_length", max_length=20), TEXT),
    )
    yield case(
        "add_special_tokens=False", lambda: piped(_classifier(add_special_tokens=False), TEXT)
    )
    yield case("top_k=None", lambda: piped(_classifier(top_k=None), TEXT))
    yield case(
        "a pair as a dict",
        lambda: piped(_classifier(), {"text": PAIR[0], "text_pair": PAIR[1]}),
    )
    yield case(
        "a pair as a dict, truncation='only_second', max_length=10",
        lambda: piped(
            _classifier(truncation="only_second", max_length=10),
            {"text": PAIR[0], "text_pair": PAIR[1]},
        ),
    )
    yield case(
        "a list of texts, truncation=True, max_length=5",
        lambda: piped(_classifier(truncation=True, max_length=5), [TEXT, PAIR[1]]),
    )
    yield case("a pair in a nested list", lambda: piped(_classifier(), [[list(PAIR)]]))
    yield case(
        "truncation=True, max_length=6 at the call",
        lambda: named(_classifier(), inputs=TEXT, truncation=True, max_length=6),
    )
    yield case(
        "tokenizer that truncates left, max_length=5",
        lambda: piped(
            _classifier(words(truncation_side="left"), truncation=True, max_length=5), TEXT
        ),
    )
    yield case(
        "batch_size=2, two texts of different lengths",
        lambda: piped(
            _classifier(batch_size=2, truncation=True, max_length=6),
            [TEXT, "the cat"],
            expect={"batch": True},
        ),
    )
    yield case("in bfloat16", lambda: piped(_bfloat16(), TEXT))
    yield case("LoRA of PEFT", _adapted)
    yield case("a compiled model", _compiled)
    yield case("a pair as a tuple", lambda: _tuple(_classifier(truncation=True, max_length=9)))
    yield case(
        "truncation=4 of extract, max_length=6 at the object",
        lambda: piped(
            _classifier(truncation=True, max_length=6),
            LONG,
            truncation=4,
            expect={"note": "truncation"},
        ),
    )
    yield case(
        "truncation=True of extract, max_length=6 at the object",
        lambda: piped(_classifier(truncation=True, max_length=6), LONG, truncation=True),
    )
    yield case(
        "tokenizer= of extract beside the object's",
        lambda: piped(
            _classifier(truncation=True, max_length=6),
            TEXT,
            tokenizer=words(),
            expect={"note": "max_length"},
        ),
    )
    yield case("ids that the tokenizer made", lambda: _ready(_classifier(max_length=6)))
    yield case(
        "layers=, dtype= and outputs=True",
        lambda: piped(_classifier(truncation=True, max_length=6), TEXT, outputs=True),
    )
    yield case(
        "spool=",
        lambda: piped(_classifier(truncation=True, max_length=6), TEXT, spool=new_folder("spool")),
    )
    yield case("in train mode", lambda: piped(_trained_further(), TEXT))
    yield case(
        "a tokenizer with settings as a pair",
        lambda: piped(
            pipeline(
                "text-classification",
                model=bert("ForSequenceClassification"),
                tokenizer=(_saved_words(), {"truncation_side": "left", "model_max_length": 6}),
                truncation=True,
            ),
            TEXT,
        ),
    )
    yield case(
        "DistilBERT, which takes no token_type_ids",
        lambda: piped(
            pipeline(
                "text-classification",
                model=typed("distilbert", "DistilBertForSequenceClassification", vocab_size=400),
                tokenizer=words(),
                truncation=True,
                max_length=7,
            ),
            TEXT,
        ),
    )
    yield case(
        "tokenizer whose padding is on at the object",
        lambda: piped(_classifier(padding=True, truncation=True, max_length=6), TEXT),
    )
    yield case(
        "BART, whose decoder reads the text shifted",
        lambda: piped(
            pipeline(
                "text-classification",
                model=bart("BartForSequenceClassification"),
                tokenizer=ending(),
                truncation=True,
                max_length=8,
            ),
            TEXT,
        ),
    )
    yield case(
        "GPT-2, max_length=4",
        lambda: piped(
            pipeline(
                "text-classification",
                model=_gpt2_classifier(),
                tokenizer=pieces(),
                truncation=True,
                max_length=4,
            ),
            TEXT,
        ),
    )


def _tuple(pipe: Any) -> Call:
    return piped(pipe, PAIR, own=lambda: pipe({"text": PAIR[0], "text_pair": PAIR[1]}))


def _ready(pipe: Any) -> Call:
    """Return a call of ids, which go to the model as they are."""
    ids = words()(TEXT, return_tensors="pt")
    return piped(pipe, dict(ids), own=lambda: pipe.model(**ids))


def _adapted() -> Call:
    import peft

    model = model_of("BertForSequenceClassification", 10.0)
    config = peft.LoraConfig(target_modules=["query"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    pipe = pipeline(
        "text-classification", model=adapted, tokenizer=words(), truncation=True, max_length=6
    )
    # The eager copy that computes the own weights needs the adapter in the weights.
    merged = copy.deepcopy(adapted).merge_and_unload()
    own = pipeline(
        "text-classification", model=merged, tokenizer=words(), truncation=True, max_length=6
    )
    return Call(merged, lambda: own(TEXT), lambda: extract(pipe, TEXT, progress=False))


def _compiled() -> Call:
    pipe = _classifier(truncation=True, max_length=6)
    model = pipe.model
    pipe.model = torch.compile(model, backend="eager")
    own = _classifier(truncation=True, max_length=6)
    return Call(model, lambda: own(TEXT), lambda: extract(pipe, TEXT, progress=False))


def _bfloat16() -> Any:
    model = model_of("BertForSequenceClassification", 10.0).bfloat16()
    return pipeline(
        "text-classification", model=model, tokenizer=words(), truncation=True, max_length=6
    )


def _trained_further() -> Any:
    pipe = pipeline(
        "text-classification", model=model_of("BertForSequenceClassification", 10.0),
        tokenizer=words(), truncation=True, max_length=6,
    )  # fmt: skip
    pipe.model.train()
    return pipe


def _saved_words() -> str:
    folder = str(new_folder("tokenizer"))
    words().save_pretrained(folder)
    return folder


def _gpt2_classifier() -> Any:
    return model_of(
        "LlamaForSequenceClassification", num_key_value_heads=2, pad_token_id=0, num_labels=3
    )


def _aggregated(strategy: str) -> Call:
    return piped(_tagger(aggregation_strategy=strategy), TEXT)


def tagging() -> Iterator[Case]:
    """Yield calls of token classification."""

    def case(text: str, make: Callable[[], Call]) -> Case:
        return Case("token classification", text, make)

    short = 6
    yield case("one text", lambda: piped(_tagger(), TEXT))
    yield case("a list of texts", lambda: piped(_tagger(), [TEXT, PAIR[1]]))
    for strategy in ("simple", "first"):
        yield case(
            f"aggregation_strategy={strategy!r}",
            partial(_aggregated, strategy),
        )
    yield case(
        "model_max_length=5", lambda: piped(_tagger(tokenizer=words(model_max_length=5)), TEXT)
    )
    yield case("ignore_labels=[]", lambda: piped(_tagger(ignore_labels=[]), TEXT))

    def strided() -> Any:
        tokenizer = words(model_max_length=short)
        return _tagger(tokenizer=tokenizer, stride=2, aggregation_strategy="simple")

    yield case("stride=2, the first window", lambda: piped(strided(), TEXT))
    yield case("stride=2, part=1", lambda: piped(strided(), TEXT, part=1))
    yield case("stride=2, part=2", lambda: piped(strided(), TEXT, part=2))
    yield case("stride=2, a text that fits", lambda: piped(strided(), "the cat"))
    yield case(
        "is_split_into_words at the call",
        lambda: named(_tagger(), inputs=[TEXT.split()], is_split_into_words=True),
    )


def masks_and_features() -> Iterator[Case]:
    """Yield calls of fill-mask and feature extraction."""

    def filler(**settings: Any) -> Any:
        return pipeline("fill-mask", model=bert("ForMaskedLM"), tokenizer=words(), **settings)

    def features(**settings: Any) -> Any:
        tokenizer = settings.pop("tokenizer", None) or words()
        return pipeline("feature-extraction", model=bert("Model"), tokenizer=tokenizer, **settings)

    masked = "the cat [MASK] on the mat and the dog"
    for text, make in {
        "one text": lambda: piped(filler(), masked),
        "tokenizer_kwargs with truncation": lambda: piped(
            filler(tokenizer_kwargs={"truncation": True, "max_length": 6}), masked
        ),
        "targets": lambda: piped(filler(targets=["dog", "cat"]), masked),
        "two masks": lambda: piped(filler(), "the [MASK] sat on the [MASK]"),
        "tokenizer_kwargs at the call": lambda: named(
            filler(), inputs=masked, tokenizer_kwargs={"truncation": True, "max_length": 6}
        ),
    }.items():
        yield Case("fill-mask", text, make)
    for text, make in {
        "one text": lambda: piped(features(), TEXT),
        "tokenize_kwargs without special tokens": lambda: piped(
            features(tokenize_kwargs={"add_special_tokens": False}), TEXT
        ),
        "tokenize_kwargs with truncation": lambda: piped(
            features(tokenize_kwargs={"truncation": True, "max_length": 5}), TEXT
        ),
        "truncation at the object, short model_max_length": lambda: piped(
            features(truncation=True, tokenizer=words(model_max_length=7)), TEXT
        ),
        "tokenize_kwargs with padding": lambda: piped(
            features(tokenize_kwargs={"padding": "max_length", "max_length": 16}), TEXT
        ),
        "a list of texts": lambda: piped(
            features(tokenize_kwargs={"add_special_tokens": False}), [TEXT, PAIR[1]]
        ),
        "BART with return_tensors": lambda: piped(
            pipeline(
                "feature-extraction",
                model=bart("BartModel"),
                tokenizer=ending(),
                return_tensors=True,
            ),
            TEXT,
        ),
        "T5's encoder": lambda: piped(
            pipeline(
                "feature-extraction",
                model=typed("t5", "T5EncoderModel", vocab_size=400),
                tokenizer=ending(),
                tokenize_kwargs={"truncation": True, "max_length": 4},
            ),
            TEXT,
        ),
    }.items():
        yield Case("feature extraction", text, make)


_LABELS = ["politics", "dog", "cat"]


def zero_shot() -> Iterator[Case]:
    """Yield calls of zero-shot classification, which runs once for each candidate label."""

    def pipe(model: Any = None, tokenizer: Any = None, **settings: Any) -> Any:
        model = model or bert(
            "ForSequenceClassification", label2id=_Labels({"entailment": 0, "contradiction": 1})
        )
        return pipeline(
            "zero-shot-classification", model=model, tokenizer=tokenizer or words(), **settings
        )

    def call(pipe: Any, **options: Any) -> Call:
        return named(pipe, sequences=TEXT, **options)

    for text, make in {
        "three labels at the call": lambda: call(pipe(), candidate_labels=_LABELS),
        "three labels at the call, part=1": lambda: call(pipe(), candidate_labels=_LABELS, part=1),
        "three labels at the call, part=2": lambda: call(pipe(), candidate_labels=_LABELS, part=2),
        "one label at the call": lambda: call(pipe(), candidate_labels=["dog"]),
        "labels as one string": lambda: call(pipe(), candidate_labels="dog, cat"),
        "labels at the object": lambda: piped(pipe(candidate_labels=_LABELS), TEXT),
        "labels at the object, part=2": lambda: piped(pipe(candidate_labels=_LABELS), TEXT, part=2),
        "one label at the object": lambda: piped(pipe(candidate_labels=["dog"]), TEXT),
        "hypothesis_template at the object": lambda: piped(
            pipe(candidate_labels=["dog"], hypothesis_template="the text is {}"), TEXT
        ),
        "hypothesis_template at the call": lambda: call(
            pipe(), candidate_labels=["dog"], hypothesis_template="the text is {}"
        ),
        "multi_label at the call": lambda: call(pipe(), candidate_labels=_LABELS, multi_label=True),
        "a long text, truncated first": lambda: named(
            pipe(tokenizer=words(model_max_length=40)), sequences=LONG, candidate_labels=["dog"]
        ),
        "BART": lambda: call(pipe(_bart_with_labels(), ending()), candidate_labels=["dog"]),
        "no labels": lambda: piped(
            pipe(), TEXT, expect={"required": "candidate_labels|ZeroShot|raise"}
        ),
    }.items():
        yield Case("zero-shot classification", text, make)


class _Labels(dict[str, int]):
    """Dictionary that can be an argument of a cached function."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _bart_with_labels() -> Any:
    return bart("BartForSequenceClassification", label2id={"entailment": 0, "contradiction": 1})


_CHAT = [{"role": "user", "content": "hello the cat"}]
_ANSWERED = [*_CHAT, {"role": "assistant", "content": "the dog sat"}]


def generator(model: Any = None, tokenizer: Any = None, **settings: Any) -> Any:
    """Return a pipeline that generates text."""
    return pipeline(
        "text-generation",
        model=model or llama(),
        tokenizer=tokenizer or pieces(),
        **{"max_new_tokens": 4, "do_sample": False, **settings},
    )


def generation() -> Iterator[Case]:  # noqa: PLR0915
    """Yield calls of text generation by a pipeline."""

    def case(text: str, pipe: Callable[[], Any], inputs: Any = TEXT, **options: Any) -> Case:
        options.setdefault("generate", 4)
        more = options.pop("own_options", {})

        def make() -> Call:
            made = pipe()
            return piped(made, inputs, own=lambda: made(inputs, **more), **options)

        return Case("text generation", text, make)

    yield case("one text", generator)
    yield case("prefix", lambda: generator(prefix="hello "))
    yield case(
        "prefix, a mapping as generate",
        lambda: generator(prefix="hello "),
        generate={"max_new_tokens": 4},
    )
    yield case("prefix in the model's configuration", lambda: generator(llama(prefix="hello ")))
    yield case(
        "repetition_penalty at the object",
        lambda: generator(gpt2(), repetition_penalty=5.0, max_new_tokens=6),
        generate={"max_new_tokens": 6},
    )
    yield case(
        "repetition_penalty at the object, generate=6",
        lambda: generator(gpt2(), repetition_penalty=5.0, max_new_tokens=6),
        generate=6,
    )
    yield case(
        "no_repeat_ngram_size at the object", lambda: generator(gpt2(), no_repeat_ngram_size=1)
    )
    yield case(
        "bad_words_ids at the object",
        lambda: generator(bad_words_ids=[[number] for number in range(10, 200)]),
    )
    yield case(
        "num_beams=3 at the object",
        lambda: generator(num_beams=3),
        generate={"max_new_tokens": 4},
    )
    yield case(
        "add_special_tokens=True with a tokenizer that adds an end token",
        lambda: generator(tokenizer=ending(), add_special_tokens=True),
    )
    yield case(
        "a tokenizer that adds an end token (pipelines leave it out)",
        lambda: generator(tokenizer=ending()),
    )
    yield case("truncation=True, max_length=6", lambda: generator(truncation=True, max_length=6))
    yield case(
        "handle_long_generation='hole'",
        lambda: generator(
            tokenizer=pieces(model_max_length=20), handle_long_generation="hole", max_new_tokens=4
        ),
        " ".join([TEXT] * 3),
    )
    yield case("return_full_text=False", lambda: generator(return_full_text=False))
    yield case("return_tensors=True", lambda: generator(return_tensors=True))
    yield case("a chat", generator, _CHAT)
    yield case(
        "a chat that ends with the assistant",
        lambda: generator(max_new_tokens=2),
        _ANSWERED,
        generate=2,
    )
    yield case(
        "a chat that ends with the assistant, a mapping as generate",
        generator,
        _ANSWERED,
        generate={"max_new_tokens": 4},
    )
    yield case(
        "continue_final_message=False at the object",
        lambda: generator(continue_final_message=False),
        _ANSWERED,
    )
    yield case(
        "continue_final_message=True at the object",
        lambda: generator(continue_final_message=True),
        _CHAT,
    )
    yield case(
        "tokenizer_encode_kwargs with a chat",
        lambda: generator(tokenizer_encode_kwargs={"truncation": True, "max_length": 6}),
        _CHAT,
    )
    yield case("a chat with GPT-2", lambda: generator(gpt2()), _CHAT)
    yield case("two chats", generator, [_CHAT, _ANSWERED])
    yield case(
        "sampling at the object",
        lambda: generator(gpt2(), do_sample=True, temperature=0.9),
        generate={"max_new_tokens": 4},
    )
    yield case(
        "do_sample in generate, a prefix at the object",
        lambda: generator(gpt2(), prefix="hello "),
        generate={"max_new_tokens": 4, "do_sample": True, "temperature": 0.7},
        own_options={"do_sample": True, "temperature": 0.7},
    )
    yield case(
        "num_return_sequences=2 at the object",
        lambda: generator(gpt2(), num_beams=2, num_return_sequences=2),
        generate={"max_new_tokens": 4},
        expect={"error": "num_return_sequences|sequences", "note": "sequences"},
    )
    yield case(
        "an assistant model at the object",
        lambda: pipeline(
            "text-generation",
            model=llama(),
            tokenizer=pieces(),
            assistant_model=llama(),
            max_new_tokens=4,
            do_sample=False,
        ),
    )
    yield case(
        "a tokenizer that pads left and adds a start token",
        lambda: generator(tokenizer=_starting(padding_side="left")),
    )
    yield case("padding=True at the object", lambda: generator(padding=True))
    yield case(
        "a penalty in generate that replaces the object's",
        lambda: generator(gpt2(), repetition_penalty=5.0),
        generate={"max_new_tokens": 4, "repetition_penalty": 1.0},
        own_options={"repetition_penalty": 1.0},
    )
    yield case(
        "a GenerationConfig as generate",
        lambda: generator(gpt2(), prefix="hello "),
        generate=transformers.GenerationConfig(
            max_new_tokens=4, repetition_penalty=5.0, do_sample=False, pad_token_id=0
        ),
        own_options={
            "generation_config": transformers.GenerationConfig(
                max_new_tokens=4, repetition_penalty=5.0, do_sample=False, pad_token_id=0
            )
        },
    )
    yield case("a system message", generator, [{"role": "system", "content": "the cat"}, *_CHAT])
    yield case(
        "stop_strings in the model's generation config",
        _stopping_model,
        generate={"max_new_tokens": 6},
        own_options={"tokenizer": pieces()},
    )
    yield case(
        "eos_token_id at the object",
        lambda: generator(gpt2(), eos_token_id=242),
        generate={"max_new_tokens": 8},
        own_options={"max_new_tokens": 8},
    )
    yield case("min_new_tokens at the object", lambda: generator(gpt2(), min_new_tokens=4))
    yield case("prompt_lookup at the object", lambda: generator(gpt2(), prompt_lookup_num_tokens=2))
    yield case(
        "a base model's text with beams and a prefix",
        lambda: generator(prefix="hello ", num_beams=2),
        generate={"max_new_tokens": 4},
    )
    yield case(
        "stop_sequence at the object",
        lambda: generator(gpt2(), stop_sequence=_first_word(), max_new_tokens=12),
        generate={"max_new_tokens": 12},
    )
    yield Case("text generation", "stop_strings as an argument", _stopped)
    yield case("a list of texts with a prefix", lambda: generator(prefix="hello "), [TEXT, PAIR[1]])
    yield Case(
        "text generation",
        "generation_config at the object",
        lambda: piped(
            generator(
                gpt2(),
                generation_config=transformers.GenerationConfig(
                    max_new_tokens=4, repetition_penalty=5.0, eos_token_id=2, pad_token_id=0
                ),
            ),
            TEXT,
            generate={"max_new_tokens": 4},
        ),
    )
    yield Case(
        "text generation",
        "max_new_tokens at the call",
        lambda: named(
            generator(prefix="hello "), text_inputs=TEXT, max_new_tokens=1, expect={"prompt": True}
        ),
    )
    yield Case(
        "text generation",
        "prefix at the call",
        lambda: _prefixed_at_the_call(generator()),
    )
    yield Case(
        "text generation",
        "prefix, without generate: the prompt",
        lambda: _prompt_of(generator(prefix="hello "), TEXT),
    )
    yield Case(
        "text generation",
        "a chat without generate: the prompt",
        lambda: _prompt_of(generator(), _ANSWERED),
    )


def _prefixed_at_the_call(pipe: Any) -> Call:
    arguments = {"text_inputs": TEXT, "prefix": "hello "}
    return piped(pipe, arguments, own=lambda: pipe(**arguments), generate=4)


def _first_word() -> str:
    """Return the text of the first token that GPT-2 generates."""
    pipe = generator(gpt2())
    word: str = pipe(TEXT, max_new_tokens=1, return_full_text=False)[0]["generated_text"]
    return word


def _starting(**settings: Any) -> Any:
    """Return a tokenizer that adds a start token, like Llama's."""
    tokenizer = pieces(**settings)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def _stopping_model() -> Any:
    model = gpt2()
    model.generation_config.stop_strings = [_first_word()]
    return generator(model, max_new_tokens=6)


def _stopped() -> Call:
    pipe, stops = generator(gpt2(), max_new_tokens=12), [_first_word()]
    return piped(
        pipe,
        TEXT,
        own=lambda: pipe(TEXT, stop_strings=stops, tokenizer=pipe.tokenizer),
        generate={"max_new_tokens": 12, "stop_strings": stops},
    )


def _prompt_of(pipe: Any, inputs: Any) -> Call:
    """Return a call whose own part reads only the prompt and one token, which is not read."""
    return piped(pipe, inputs, own=lambda: pipe(inputs, max_new_tokens=1), expect={"prompt": True})


def _tapas_tokenizer(**settings: Any) -> Any:
    vocabulary = words().get_vocab()
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), "[EMPTY]"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(tokens))
        return transformers.TapasTokenizer(str(path), **settings)


def tables() -> Iterator[Case]:
    """Yield calls of table question answering."""
    table = {"the": ["1", "2"], "answer": ["3", "4"]}
    query = {"table": table, "query": "the answer?"}

    def pipe(**settings: Any) -> Any:
        tokenizer = _tapas_tokenizer(**settings.pop("tokenizer", {}))
        model = typed(
            "tapas",
            "TapasForQuestionAnswering",
            vocab_size=400,
            type_vocab_sizes=[3, 256, 256, 2, 256, 256, 10],
            max_position_embeddings=64,
        )
        return pipeline("table-question-answering", model=model, tokenizer=tokenizer, **settings)

    for text, make in {
        "one question": lambda: piped(pipe(), query),
        "truncation='drop_rows_to_fit'": lambda: piped(pipe(truncation="drop_rows_to_fit"), query),
        "padding='max_length'": lambda: piped(
            pipe(padding="max_length", tokenizer={"model_max_length": 32}), query
        ),
        "sequential=True": lambda: piped(
            pipe(sequential=True), {"table": table, "query": ["the answer?", "the table?"]}
        ),
        "table= and query= at the call": lambda: named(pipe(), table=table, query="the answer?"),
    }.items():
        yield Case("table question answering", text, make)


def plain() -> Iterator[Case]:
    """Yield plain calls of a model with the output of a tokenizer."""

    def call(model: Any, encoded: Mapping[str, Any], given: Any = None, **options: Any) -> Call:
        return Call(
            model,
            lambda: model(**encoded),
            lambda: extract(model, given or dict(encoded), progress=False),
            **options,
        )

    def listed() -> Call:
        encoded = words()(TEXT)
        return Call(
            bare,
            lambda: bare(**words()(TEXT, return_tensors="pt")),
            lambda: extract(bare, encoded, progress=False),
        )

    def batch(tokenizer: Any, model: Any, side: str, **options: Any) -> Call:
        tokenizer.padding_side = side
        encoded = tokenizer([TEXT, "the cat", PAIR[1]], padding=True, return_tensors="pt")
        return call(model, encoded, batch=True, **options)

    bare = bert("Model")
    for text, make in {
        "a text's ids": lambda: call(bare, words()(TEXT, return_tensors="pt")),
        "a pair's ids with token_type_ids": lambda: call(bare, words()(*PAIR, return_tensors="pt")),
        "a truncated pair": lambda: call(
            bare, words()(*PAIR, truncation=True, max_length=9, return_tensors="pt")
        ),
        "ids without special tokens": lambda: call(
            bare, words()(TEXT, add_special_tokens=False, return_tensors="pt")
        ),
        "a batch padded right, BERT": lambda: batch(words(), bare, "right"),
        "a batch padded left, BERT": lambda: batch(words(), bare, "left"),
        "a batch padded right, Llama": lambda: batch(pieces(), llama(), "right"),
        "a batch padded left, Llama": lambda: batch(pieces(), llama(), "left"),
        "a batch padded left, GPT-2": lambda: batch(
            pieces(), gpt2(), "left", required="position|padding"
        ),
        "position_ids that are not in order": lambda: call(
            llama(),
            {"input_ids": torch.arange(8, 20)[None], "position_ids": torch.arange(3, 15)[None]},
        ),
        "packed rows by position_ids": lambda: call(
            llama(),
            {
                "input_ids": torch.arange(8, 20)[None],
                "position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]]),
            },
        ),
        "packed rows by position_ids, use_cache in the configuration": lambda: call(
            llama(use_cache=True),
            {
                "input_ids": torch.arange(8, 20)[None],
                "position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]]),
                "use_cache": True,
            },
            required="document|packed|position",
        ),
        "T5 with labels": lambda: call(
            t5(), {"input_ids": torch.arange(8, 20)[None], "labels": torch.arange(9, 15)[None]}
        ),
        "BART, padded encoder, decoder_input_ids": lambda: call(
            bart(),
            {
                **ending()([TEXT, "the cat"], padding=True, return_tensors="pt"),
                "decoder_input_ids": torch.tensor([[2, 8, 9, 10], [2, 11, 12, 13]]),
            },
            batch=True,
        ),
        "a tokenizer's output with lists": listed,
        "offset_mapping and special_tokens_mask beside the ids": lambda: call(
            bare,
            words()(TEXT, return_tensors="pt"),
            given=words()(
                TEXT,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                return_tensors="pt",
            ),
        ),
        "two rows that pad a pair": lambda: call(
            bare,
            words()([PAIR, ("the cat", "dog")], padding=True, return_tensors="pt"),
            batch=True,
        ),
        "a mask of four axes": lambda: call(
            llama(),
            {
                "input_ids": torch.arange(8, 14)[None],
                "attention_mask": torch.full((1, 1, 6, 6), -1e9).triu(1),
            },
        ),
        "inputs_embeds": lambda: call(bare, {"inputs_embeds": torch.randn(1, 7, 48)}),
    }.items():
        yield Case("plain call", text, make)

    def direct(model: Any, tokenizer: Any, inputs: Any, own: Callable[[], Any]) -> Call:
        return Call(model, own, lambda: extract(model, inputs, tokenizer=tokenizer, progress=False))

    def texts() -> Call:
        tokenizer = words()
        return direct(bare, tokenizer, TEXT, lambda: bare(**tokenizer(TEXT, return_tensors="pt")))

    def pair() -> Call:
        tokenizer = words()
        return direct(bare, tokenizer, PAIR, lambda: bare(**tokenizer(*PAIR, return_tensors="pt")))

    def chat() -> Call:
        tokenizer, model = pieces(), llama()
        return direct(
            model,
            tokenizer,
            _CHAT,
            lambda: model(
                **tokenizer.apply_chat_template(_CHAT, return_dict=True, return_tensors="pt")
            ),
        )

    yield Case("plain call", "a text with tokenizer=", texts)
    yield Case("plain call", "a pair with tokenizer=", pair)
    yield Case("plain call", "a chat with tokenizer=", chat)


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    for group in (
        classification,
        tagging,
        masks_and_features,
        zero_shot,
        generation,
        tables,
        plain,
    ):
        yield from group()
