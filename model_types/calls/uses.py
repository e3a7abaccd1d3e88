"""Other functions of attnviz that read texts with a model: statistics, corpora, interventions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from transformers import pipeline

from attnviz import (
    Ablate,
    attribute,
    compare,
    extract,
    extract_corpus,
    head_effects,
    head_statistics,
    intervene,
    permutation_effect,
    show_head_view,
    token_effects,
)
from attnviz.extraction.live import extract_live
from attnviz.views.show import nothing_displayed
from model_types.calls.images import classifier
from model_types.calls.judge import Call, Case
from model_types.calls.parts import (
    LONG,
    PAIR,
    TEXT,
    bert,
    gpt2,
    minilm_folder,
    new_folder,
    phone_photo,
    words,
)
from model_types.calls.texts import generator
from model_types.calls.wrappers import inner, minilm, saved, sentences

_Made = tuple[Any, Any, Any, Callable[[Any], Any]]


def _truncated() -> _Made:
    pipe = pipeline(
        "text-classification", model=bert("ForSequenceClassification"), tokenizer=words(),
        truncation=True, max_length=6,
    )  # fmt: skip
    return pipe, pipe.model, TEXT, pipe


def _plain() -> _Made:
    pipe = pipeline(
        "text-classification", model=bert("ForSequenceClassification"), tokenizer=words()
    )
    return pipe, pipe.model, TEXT, pipe


def _tagger() -> _Made:
    pipe = pipeline(
        "token-classification", model=bert("ForTokenClassification"),
        tokenizer=words(model_max_length=7),
    )  # fmt: skip
    return pipe, pipe.model, TEXT, pipe


def _features() -> _Made:
    pipe = pipeline(
        "feature-extraction", model=bert("Model"), tokenizer=words(),
        tokenize_kwargs={"add_special_tokens": False},
    )  # fmt: skip
    return pipe, pipe.model, TEXT, pipe


def _filler() -> _Made:
    pipe = pipeline(
        "fill-mask", model=bert("ForMaskedLM"), tokenizer=words(),
        tokenizer_kwargs={"truncation": True, "max_length": 6},
    )  # fmt: skip
    return pipe, pipe.model, "the [MASK] sat on the mat and the dog", pipe


def _zero_shot() -> _Made:
    pipe = pipeline(
        "zero-shot-classification", model=bert("ForSequenceClassification"),
        tokenizer=words(), candidate_labels=["dog"],
    )  # fmt: skip
    return pipe, pipe.model, TEXT, pipe


def _prefixed() -> _Made:
    pipe = generator(gpt2(), prefix="hello ")
    return pipe, pipe.model, TEXT, lambda text: pipe(text, max_new_tokens=1)


def _limited() -> _Made:
    wrapper = sentences(limit=8)
    return wrapper, inner(wrapper), TEXT, lambda text: wrapper.encode([text])


def _prompted() -> _Made:
    wrapper = sentences(prompts={"query": "query : "}, default_prompt_name="query")
    return wrapper, inner(wrapper), TEXT, lambda text: wrapper.encode([text])


def _long() -> _Made:
    wrapper = minilm()
    return wrapper, inner(wrapper), LONG, lambda text: wrapper.encode([text])


def _cross() -> _Made:
    from sentence_transformers import CrossEncoder

    wrapper = CrossEncoder(saved("ForSequenceClassification"), device="cpu", max_length=9)
    return wrapper, inner(wrapper), PAIR, lambda pair: wrapper.predict([pair])


def _splade() -> _Made:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    first = Transformer(saved("ForMaskedLM"), transformer_task="fill-mask")
    first.max_seq_length = 7
    wrapper = SparseEncoder(modules=[first, SpladePooling()], device="cpu")
    return wrapper, inner(wrapper), TEXT, lambda text: wrapper.encode([text])


# Functions that make a wrapper, its model, an input, and the own call.
_WRAPPERS: dict[str, Callable[[], _Made]] = {
    "text classification": _plain,
    "text classification, max_length=6": _truncated,
    "token classification, model_max_length=7": _tagger,
    "feature extraction, tokenize_kwargs": _features,
    "fill-mask, tokenizer_kwargs": _filler,
    "zero-shot classification, one label": _zero_shot,
    "text generation, prefix": _prefixed,
    "SentenceTransformer, max_seq_length": _limited,
    "SentenceTransformer, default_prompt_name": _prompted,
    "SentenceTransformer, 270 words": _long,
    "CrossEncoder, max_length": _cross,
    "SPLADE, max_seq_length": _splade,
}


def _logit(output: Any) -> Any:
    """Return a number that depends on all tokens, as the answer of an intervention."""
    value = output.logits if hasattr(output, "logits") else output[0]
    return value.float().flatten(1).mean(dim=1)


def _used(
    make: Callable[[], Any],
    use: Callable[[Any, Any], Any],
    *,
    several: bool,
    removes: bool = False,
) -> Call:
    wrapper, model, text, own = make()
    inputs = [text, text] if several else text
    return Call(
        model,
        lambda: own(text),
        lambda: use(wrapper, inputs),
        by_ids=True,
        prompt=True,
        removes=removes,
    )


def _uses() -> dict[str, tuple[Callable[[Any, Any], Any], bool]]:
    return {
        "head_statistics": (lambda w, texts: head_statistics(w, texts, progress=False), True),
        "extract_corpus": (lambda w, texts: extract_corpus(w, texts, progress=False), True),
        "intervene": (
            lambda w, text: intervene(
                w, text, Ablate(layers=0, heads=0), answer=_logit, progress=False
            ),
            False,
        ),
        "token_effects": (
            lambda w, text: token_effects(w, text, answer=_logit, progress=False),
            False,
        ),
        "permutation_effect": (
            lambda w, text: permutation_effect(
                w, text, layer=0, head=0, answer=_logit, permutations=4
            ),
            False,
        ),
        "what-if in a view": (_changed, False),
        "attribute": (lambda w, text: attribute(w, text, answer=_logit, progress=False), False),
        "head_effects": (
            lambda w, text: head_effects(w, text, answer=_logit, progress=False),
            False,
        ),
    }


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    for name, (use, several) in _uses().items():
        for text, make in _WRAPPERS.items():
            removes = name == "token_effects"
            # Removing each of 256 tokens takes a minute.
            if not (removes and "270 words" in text):
                making = partial(_used, make, use, several=several, removes=removes)
                yield Case(name, text, making)
    yield Case("head_statistics", "texts of different lengths, max_seq_length", _lengths)
    yield Case("head_statistics", "token classification with windows", _windows)
    yield Case("head_statistics", "CrossEncoder, pairs as lists", _pairs_as_lists)
    yield Case("head_statistics", "text generation, chats", _chats)
    yield Case("extract_corpus", "text classification, pairs as dicts", _pairs_as_dicts)
    yield Case("compare", "two texts of a truncated text classification", _compared)
    for text, make in _WRAPPERS.items():
        yield Case("show_head_view", text, partial(_shown, make))
    yield Case("head_statistics", "image classification, a phone photo", _photo_statistics)
    yield Case("show_head_view", "text generation, prefix and penalty", _generating)
    yield Case("live generation", "text generation, prefix and penalty", _live)
    yield Case(
        "live generation", "text generation, a chat that ends with the assistant", _live_chat
    )
    yield Case("head_statistics", "the folder of MiniLM, 270 words", _folder_statistics)


def _shown(make: Callable[[], Any]) -> Call:
    wrapper, model, text, own = make()

    def show() -> Any:
        with nothing_displayed():
            return show_head_view(wrapper, text)

    return Call(model, lambda: own(text), show, prompt=True)


def _changed(wrapper: Any, text: Any) -> Any:
    """Change attention in a view as a reader does, which runs the model again."""
    with nothing_displayed():
        view = show_head_view(wrapper, text, answer=_logit)
    view.changes = [Ablate(layers=0, heads=0)]
    return view.changed_record


def _lengths() -> Call:
    wrapper = sentences(limit=8)
    texts = [TEXT, "the cat", PAIR[1], "a dog sat"]
    return Call(
        inner(wrapper),
        lambda: [wrapper.encode([text]) for text in texts],
        lambda: head_statistics(wrapper, texts, progress=False),
        by_ids=True,
    )


def _windows() -> Call:
    """Return a call whose statistics read the first window, or all, of each text."""
    pipe = pipeline(
        "token-classification", model=bert("ForTokenClassification"),
        tokenizer=words(model_max_length=7), stride=2, aggregation_strategy="simple",
    )  # fmt: skip
    return Call(
        pipe.model,
        lambda: pipe(TEXT),
        lambda: head_statistics(pipe, [TEXT, TEXT], progress=False),
        by_ids=True,
        required="part|window|call",
    )


def _pairs_as_lists() -> Call:
    wrapper, model, pair, own = _cross()
    pairs = [list(pair), [TEXT, "the dog"]]
    return Call(
        model,
        lambda: [own(one) for one in pairs],
        lambda: head_statistics(wrapper, pairs, progress=False),
        by_ids=True,
    )


def _chats() -> Call:
    pipe = generator(gpt2())
    user = {"role": "user", "content": "hello"}
    chats = [[user], [user, {"role": "assistant", "content": "the dog"}]]
    return Call(
        pipe.model,
        lambda: [pipe(chat, max_new_tokens=1) for chat in chats],
        lambda: head_statistics(pipe, chats, progress=False),
        by_ids=True,
        prompt=True,
    )


def _pairs_as_dicts() -> Call:
    pipe = _truncated()[0]
    pairs = [{"text": PAIR[0], "text_pair": PAIR[1]}] * 2
    return Call(
        pipe.model,
        lambda: [pipe(dict(pair)) for pair in pairs],
        lambda: extract_corpus(pipe, pairs, progress=False),
        by_ids=True,
    )


def _compared() -> Call:
    pipe = pipeline(
        "text-classification", model=bert("ForSequenceClassification"), tokenizer=words(),
        truncation=True, max_length=6,
    )  # fmt: skip
    return Call(
        pipe.model,
        lambda: pipe([TEXT, PAIR[1]]),
        lambda: compare(extract(pipe, TEXT), extract(pipe, PAIR[1])),
        by_ids=True,
    )


def _photo_statistics() -> Call:
    pipe = classifier()
    path = str(phone_photo(new_folder()))
    from PIL import Image

    return Call(
        pipe.model,
        lambda: pipe(path),
        lambda: head_statistics(pipe, [Image.open(path)], progress=False),
        by_ids=True,
    )


def _generating() -> Call:
    pipe = generator(gpt2(), prefix="hello ", repetition_penalty=5.0)

    def show() -> Any:
        with nothing_displayed():
            return show_head_view(pipe, TEXT, generate=4)

    return Call(pipe.model, lambda: pipe(TEXT), show)


def _live() -> Call:
    return _live_of(generator(gpt2(), prefix="hello ", repetition_penalty=5.0), TEXT)


def _live_chat() -> Call:
    chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the dog"}]
    return _live_of(generator(gpt2()), chat)


def _live_of(pipe: Any, inputs: Any) -> Call:
    def live() -> Any:
        return extract_live(
            pipe, inputs, generate=4, show=lambda *_: None, is_stopped=lambda: False
        )

    return Call(pipe.model, lambda: pipe(inputs), live)


def _folder_statistics() -> Call:
    """Return a call whose statistics must be those of the text that the own call reads."""
    wrapper = minilm()
    model = inner(wrapper)
    return Call(
        model,
        lambda: wrapper.encode([LONG]),
        lambda: _records_of(extract_corpus(minilm_folder(), [LONG], progress=False)),
    )


def _records_of(corpus: Any) -> list[Any]:
    return list(corpus.records)
