"""Calls of sentence-transformers, of their saved folders, and of the user's own subclasses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import pipeline

from attnviz import extract
from model_types.calls import own
from model_types.calls.judge import Call, Case
from model_types.calls.parts import (
    LONG,
    PAIR,
    TEXT,
    bert,
    llama,
    minilm_folder,
    new_folder,
    photo,
    pieces,
    words,
)
from model_types.calls.texts import piped


@cache
def saved(head: str = "Model", **settings: Any) -> str:
    """Save a tiny BERT with its tokenizer, and return the folder. It exists until the end."""
    folder = new_folder(head)
    bert(head, **settings).save_pretrained(folder)
    words().save_pretrained(folder)
    return str(folder)


def sentences(
    kind: str = "SentenceTransformer", *, limit: int | None = None, **settings: Any
) -> Any:
    """Return a tiny SentenceTransformer on the CPU."""
    import sentence_transformers
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(saved(), max_seq_length=limit)
    pooling = Pooling(transformer.get_word_embedding_dimension())
    maker = getattr(sentence_transformers, kind)
    return maker(modules=[transformer, pooling], device="cpu", **settings)


def minilm(**settings: Any) -> Any:
    """Return a trained SentenceTransformer on the CPU."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(minilm_folder(), device="cpu", **settings)


def inner(wrapper: Any) -> Any:
    """Return the model of transformers in a wrapper."""
    return next(
        module for module in wrapper.modules() if isinstance(module, transformers.PreTrainedModel)
    )


def encoded(wrapper: Any, inputs: Any, own: Callable[[], Any] | None = None, **more: Any) -> Call:
    """Return the call of ``wrapper.encode`` with one text, which `extract` gets, too."""
    options = more.pop("options", {})
    given = more.pop("given", inputs)
    return Call(
        more.pop("model", None) or inner(wrapper),
        own or (lambda: wrapper.encode([inputs])),
        lambda: extract(wrapper, given, progress=False, **options),
        **more,
    )


def _limited(limit: int) -> Any:
    wrapper = sentences()
    wrapper.max_seq_length = limit
    return wrapper


_PROMPTS = {"query": "query the cat ", "passage": "passage "}


def sentence_transformers() -> Iterator[Case]:
    """Yield calls of SentenceTransformer."""

    def prompted(**settings: Any) -> Any:
        return sentences(prompts=_PROMPTS, **settings)

    def tokenized(**settings: Any) -> Any:
        wrapper = sentences()
        for name, value in settings.items():
            setattr(wrapper.tokenizer, name, value)
        return wrapper

    for text, make in {
        "MiniLM, one text": lambda: encoded(minilm(), TEXT),
        "MiniLM, 270 words": lambda: encoded(minilm(), LONG),
        "one text": lambda: encoded(sentences(), TEXT),
        "max_seq_length = 8": lambda: encoded(_limited(8), TEXT),
        "max_seq_length = 8, a list of texts": lambda: _list_of(_limited(8)),
        "max_seq_length of the module": lambda: encoded(sentences(limit=6), TEXT),
        "default_prompt_name": lambda: encoded(prompted(default_prompt_name="query"), TEXT),
        "default_prompt_name and max_seq_length": lambda: encoded(
            prompted(default_prompt_name="query", limit=9), TEXT
        ),
        "prompts without a default": lambda: encoded(prompted(), TEXT),
        "default_prompt_name, encode(prompt='')": lambda: _encoded_as(
            prompted(default_prompt_name="query"), prompt=""
        ),
        "encode(prompt_name='query')": lambda: _encoded_as(prompted(), prompt_name="query"),
        "encode(prompt='passage ')": lambda: _encoded_as(sentences(), prompt="passage "),
        "encode_query as a method": lambda: _asked_method(prompted(), "query"),
        "encode_document as a method": lambda: _asked_method(prompted(), "document"),
        "task='query' in a dict": lambda: _asked(prompted(), "query"),
        "task='document' in a dict": lambda: _asked(prompted(), "document"),
        "truncate_dim": lambda: encoded(sentences(truncate_dim=8), TEXT),
        "do_lower_case": lambda: encoded(_lower(), TEXT.upper()),
        "half precision": lambda: encoded(sentences().bfloat16(), TEXT),
        "a pair of texts": lambda: encoded(sentences(), PAIR),
        "truncation_side='left'": lambda: encoded(
            _with(tokenized(truncation_side="left"), max_seq_length=6), TEXT
        ),
        "padding_side='left', a list of texts": lambda: _list_of(
            tokenized(padding_side="left"), note="padding|position"
        ),
        "two Transformer modules (Router), encode_query": lambda: _routed("query"),
        "two Transformer modules (Router), encode_document": lambda: _routed("document"),
        "a Router with a default route": lambda: _routed(None),
        "in train mode": lambda: encoded(sentences().train(), TEXT),
        "a dict of text": lambda: encoded(sentences(), {"text": TEXT}),
        "a chat": _chat_of_sentences,
        "an image (CLIP)": _clip_image,
        "a text (CLIP)": _clip_text,
        "truncation=4 of extract": lambda: encoded(
            _limited(8), LONG, options={"truncation": 4}, note="truncation"
        ),
        "truncation=True of extract": lambda: encoded(
            _limited(8), LONG, options={"truncation": True}
        ),
        "ids that the tokenizer made": lambda: _ready_ids(_limited(8)),
        "a chat with a system message": lambda: _chat_of_sentences(
            [{"role": "system", "content": "the cat"}]
        ),
        "a Dense module": lambda: encoded(_with_dense(), TEXT),
        "static embeddings, which have no attention": _static,
        "LoRA": lambda: encoded(_adapted(), TEXT),
        "a list of texts with a prompt": lambda: _list_of(
            prompted(default_prompt_name="query", limit=9)
        ),
        "eager attention": lambda: encoded(
            _with_eager(prompted(default_prompt_name="query")), TEXT
        ),
        "the tokenizer's model_max_length": lambda: encoded(tokenized(model_max_length=5), TEXT),
        "an empty default prompt": lambda: encoded(
            sentences(prompts={"query": ""}, default_prompt_name="query"), TEXT
        ),
        "a prompt set after it was made": lambda: encoded(
            _with(prompted(), default_prompt_name="passage"), TEXT
        ),
        "include_prompt=False with a prompt": lambda: encoded(
            _without_prompt(prompted(default_prompt_name="query")), TEXT
        ),
    }.items():
        yield Case("SentenceTransformer", text, make)


def _with(wrapper: Any, **settings: Any) -> Any:
    for name, value in settings.items():
        setattr(wrapper, name, value)
    return wrapper


def _with_dense() -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(saved(), max_seq_length=7)
    return SentenceTransformer(
        modules=[transformer, Pooling(48), Dense(in_features=48, out_features=8)], device="cpu"
    )


def _static() -> Call:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    static = StaticEmbedding(words().backend_tokenizer, embedding_dim=8)
    wrapper = SentenceTransformer(modules=[static], device="cpu")
    model = bert("Model")
    return Call(
        model,
        lambda: wrapper.encode([TEXT]),
        lambda: extract(wrapper, TEXT, progress=False),
        required="model|attention",
    )


def _adapted() -> Any:
    import peft

    wrapper = sentences(prompts=_PROMPTS, default_prompt_name="query")
    wrapper.add_adapter(peft.LoraConfig(target_modules=["query"], init_lora_weights=False))
    return wrapper


def _with_eager(wrapper: Any) -> Any:
    inner(wrapper).set_attn_implementation("eager")
    return wrapper


def _without_prompt(wrapper: Any) -> Any:
    wrapper[1].include_prompt = False
    return wrapper


def _lower() -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(saved(), do_lower_case=True)
    pooling = Pooling(transformer.get_word_embedding_dimension())
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


def _list_of(wrapper: Any, **more: Any) -> Call:
    """Return a call of two texts. Their order in the batch is by length, the longest first."""
    texts = [TEXT, PAIR[1]]
    return encoded(wrapper, texts, lambda: wrapper.encode(texts), batch=True, **more)


def _encoded_as(wrapper: Any, **options: Any) -> Call:
    return encoded(
        wrapper,
        TEXT,
        lambda: wrapper.encode([TEXT], **options),
        given={"inputs": TEXT, **options},
    )


def _asked(wrapper: Any, task: str) -> Call:
    """Return a call of ``encode_query`` or ``encode_document``, with the task in a dict."""
    method = getattr(wrapper, f"encode_{task}")
    return Call(
        inner(wrapper),
        lambda: method([TEXT]),
        lambda: extract(wrapper, {"inputs": TEXT, "task": task}, progress=False),
    )


def _asked_method(wrapper: Any, task: str) -> Call:
    """Return a call of ``encode_query`` or ``encode_document``, with the method as the model."""
    method = getattr(wrapper, f"encode_{task}")
    return Call(
        inner(wrapper), lambda: method([TEXT]), lambda: extract(method, TEXT, progress=False)
    )


def _routed(task: str | None) -> Call:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    routes = {}
    for name, limit in (("query", 5), ("document", 9)):
        transformer = Transformer(saved(num_hidden_layers=2 if name == "query" else 3))
        transformer.max_seq_length = limit
        routes[name] = [transformer, Pooling(transformer.get_word_embedding_dimension())]
    router = Router(routes, default_route=None if task else "document")
    wrapper = SentenceTransformer(modules=[router], device="cpu")
    model = routes[task or "document"][0].auto_model
    method = getattr(wrapper, f"encode_{task}") if task else wrapper.encode
    return Call(
        model,
        lambda: method([TEXT]),
        lambda: extract(method if task else wrapper, TEXT, progress=False),
    )


def _ready_ids(wrapper: Any) -> Call:
    ids = dict(words()(TEXT, return_tensors="pt"))
    return encoded(wrapper, ids, lambda: inner(wrapper)(**ids))


def _chat_of_sentences(before: Any = ()) -> Call:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = str(new_folder("chat"))
    llama().save_pretrained(folder)
    pieces().save_pretrained(folder)
    transformer = Transformer(folder)
    wrapper = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_word_embedding_dimension())], device="cpu"
    )
    return encoded(wrapper, [*before, {"role": "user", "content": TEXT}])


@cache
def _clip() -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

    from model_types.calls.images import clip

    folder = str(new_folder("clip"))
    model, processor = clip()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(folder)], device="cpu")


def _clip_image() -> Call:
    # Only the image encoder runs, so the forward of the whole model is not observed.
    wrapper = _clip()
    return encoded(wrapper, photo(), model=inner(wrapper).vision_model, error="vision_model")


def _clip_text() -> Call:
    wrapper = _clip()
    return encoded(wrapper, TEXT, model=inner(wrapper).text_model, error="text_model")


def cross_encoders() -> Iterator[Case]:
    """Yield calls of CrossEncoder."""
    from sentence_transformers import CrossEncoder

    def made(**settings: Any) -> Any:
        labels = settings.pop("num_labels", 3)
        folder = saved("ForSequenceClassification", num_labels=labels)
        return CrossEncoder(folder, device="cpu", **settings)

    def predicted(wrapper: Any, pair: Any = PAIR, **more: Any) -> Call:
        return encoded(wrapper, pair, lambda: wrapper.predict([pair]), **more)

    for text, make in {
        "a pair": lambda: predicted(made()),
        "max_length=12": lambda: predicted(made(max_length=12)),
        "max_length set later": lambda: predicted(_with(made(), max_length=7)),
        "prompts and default_prompt_name": lambda: predicted(
            made(prompts={"rank": "hello "}, default_prompt_name="rank")
        ),
        "two pairs": lambda: predicted_list(made(max_length=9)),
        "a pair as a list": lambda: predicted(made(max_length=9), list(PAIR), note="did not"),
        "two pairs as lists": lambda: _lists_of(made(max_length=9)),
        "in bfloat16": lambda: predicted(made(max_length=9).bfloat16()),
        "predict(prompt='hello ')": lambda: _predicted_with(made(), prompt="hello "),
        "rank of a query and two documents": lambda: _ranked(made(num_labels=1, max_length=10)),
        "a folder": lambda: _of_folder(made(max_length=8), PAIR),
        "num_labels=1": lambda: predicted(made(num_labels=1, max_length=11)),
    }.items():
        yield Case("CrossEncoder", text, make)


def _predicted_with(wrapper: Any, **options: Any) -> Call:
    return encoded(
        wrapper,
        PAIR,
        lambda: wrapper.predict([PAIR], **options),
        given={"inputs": PAIR, **options},
    )


def _lists_of(wrapper: Any) -> Call:
    pairs = [list(PAIR), [TEXT, "the dog"]]
    return encoded(wrapper, pairs, lambda: [wrapper.predict([pair]) for pair in pairs])


def predicted_list(wrapper: Any) -> Call:
    """Return a call of two pairs of a CrossEncoder."""
    pairs = [PAIR, (TEXT, "the dog")]
    return encoded(wrapper, pairs, lambda: [wrapper.predict([pair]) for pair in pairs])


def _ranked(wrapper: Any) -> Call:
    documents = ["the dog waited near the cat", "the mat"]
    pairs = [(TEXT, document) for document in documents]
    return encoded(wrapper, pairs, lambda: wrapper.rank(TEXT, documents), batch=True)


def others() -> Iterator[Case]:
    """Yield calls of SparseEncoder and MultiVectorEncoder."""
    import sentence_transformers
    from sentence_transformers.base.modules import Transformer

    def splade(**settings: Any) -> Any:
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        first = Transformer(saved("ForMaskedLM"), transformer_task="fill-mask")
        first.max_seq_length = settings.pop("limit", None) or first.max_seq_length
        return sentence_transformers.SparseEncoder(
            modules=[first, SpladePooling()], device="cpu", **settings
        )

    def multi(**settings: Any) -> Any:
        first = Transformer(saved(), **settings)
        return sentence_transformers.MultiVectorEncoder(modules=[first], device="cpu")

    for text, make in {
        "SPLADE, one text": lambda: encoded(splade(), TEXT),
        "SPLADE, max_seq_length": lambda: encoded(splade(limit=7), TEXT),
        "SPLADE, default_prompt_name": lambda: encoded(
            splade(prompts=_PROMPTS, default_prompt_name="query"), TEXT
        ),
        "a Router, encode_document": lambda: _asymmetric("document"),
        "a Router, encode_query, which has no model": lambda: _asymmetric("query"),
        "SPLADE, a folder": lambda: _of_folder(splade(limit=6), TEXT),
    }.items():
        yield Case("SparseEncoder", text, make)
    for text, make in {
        "one text": lambda: encoded(multi(), TEXT),
        "max_seq_length": lambda: encoded(multi(max_seq_length=6), TEXT),
        "encode_query with query_length": lambda: _asked_method(multi(query_length=16), "query"),
        "encode_document with document_length": lambda: _asked_method(
            multi(document_length=6), "document"
        ),
    }.items():
        yield Case("MultiVectorEncoder", text, make)


def _prompted_cross() -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(
        saved("ForSequenceClassification", num_labels=1),
        device="cpu", max_length=9, prompts={"rank": "hello "}, default_prompt_name="rank",
    )  # fmt: skip


def _texts_of_folder() -> Call:
    folder = str(new_folder("saved"))
    sentences(prompts=_PROMPTS, default_prompt_name="query", limit=8).save_pretrained(folder)
    wrapper = _loaded(folder)
    texts = [TEXT, PAIR[1]]
    return Call(
        inner(wrapper),
        lambda: [wrapper.encode([text]) for text in texts],
        lambda: extract(folder, texts, progress=False),
    )


def _loaded(folder: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu")


def _of_subfolder() -> Call:
    """Return a call of a folder as older versions wrote it, with the model in a subfolder."""
    folder = new_folder("saved")
    sentences(prompts=_PROMPTS, default_prompt_name="query", limit=8).save_pretrained(str(folder))
    inner_folder = folder / "0_Transformer"
    inner_folder.mkdir()
    for path in folder.iterdir():
        is_part = path.name.startswith(("modules", "config_sentence")) or path.is_dir()
        if not is_part:
            path.rename(inner_folder / path.name)
    modules = folder / "modules.json"
    listed = json.loads(modules.read_text())
    listed[0]["path"] = "0_Transformer"
    modules.write_text(json.dumps(listed))
    wrapper = _loaded(str(folder))
    return Call(
        inner(wrapper),
        lambda: wrapper.encode([TEXT]),
        lambda: extract(str(folder), TEXT, progress=False),
    )


def _asymmetric(task: str) -> Call:
    """Return a call of a SparseEncoder with a model for documents and a table for queries."""
    import sentence_transformers
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    reader = Transformer(saved("ForMaskedLM"), transformer_task="fill-mask", max_seq_length=7)
    table = SparseStaticEmbedding(tokenizer=reader.tokenizer)
    router = Router.for_query_document(
        query_modules=[table], document_modules=[reader, SpladePooling()]
    )
    wrapper = sentence_transformers.SparseEncoder(modules=[router], device="cpu")
    method = getattr(wrapper, f"encode_{task}")
    return Call(
        inner(wrapper),
        lambda: method([TEXT]),
        lambda: extract(method, TEXT, progress=False),
        required="" if task == "document" else "did not call|does not call|not run",
    )


def _of_pipeline() -> Call:
    folder = str(new_folder("saved"))
    pipe = pipeline(
        "text-classification", model=bert("ForSequenceClassification"),
        tokenizer=words(model_max_length=8), truncation=True,
    )  # fmt: skip
    pipe.save_pretrained(folder)
    loaded = pipeline("text-classification", model=folder)
    return Call(loaded.model, lambda: loaded(TEXT), lambda: extract(folder, TEXT, progress=False))


def _of_folder(wrapper: Any, inputs: Any, *, as_path: bool = False, **options: Any) -> Call:
    """Return a call of a saved wrapper. `extract` gets the folder, the own call the wrapper."""
    folder = str(new_folder("saved"))
    wrapper.save_pretrained(folder)
    loaded = type(wrapper)(folder, device="cpu")
    own = loaded.predict if hasattr(loaded, "predict") else loaded.encode
    return Call(
        inner(loaded),
        lambda: own([inputs]),
        lambda: extract(Path(folder) if as_path else folder, inputs, progress=False, **options),
        note="not applied" if options else "",
    )


def folders() -> Iterator[Case]:
    """Yield calls of folders of SentenceTransformers and of transformers."""

    def minilm_call(text: str) -> Call:
        wrapper = minilm()
        return Call(
            inner(wrapper),
            lambda: wrapper.encode([text]),
            lambda: extract(minilm_folder(), text, progress=False),
        )

    def bare() -> Call:
        tokenizer, model = words(), bert("Model")
        return Call(
            model,
            lambda: model(**tokenizer(TEXT, return_tensors="pt")),
            lambda: extract(saved(), TEXT, progress=False),
        )

    for text, make in {
        "a SentenceTransformer with max_seq_length": lambda: _of_folder(_limited(8), TEXT),
        "a SentenceTransformer with default_prompt_name": lambda: _of_folder(
            sentences(prompts=_PROMPTS, default_prompt_name="query"), TEXT
        ),
        "a SentenceTransformer with both": lambda: _of_folder(
            sentences(prompts=_PROMPTS, default_prompt_name="query", limit=7), TEXT
        ),
        "MiniLM, one text": lambda: minilm_call(TEXT),
        "MiniLM, 270 words": lambda: minilm_call(LONG),
        "a SentenceTransformer as a Path": lambda: _of_folder(_limited(8), TEXT, as_path=True),
        "a SentenceTransformer whose model is in a subfolder": _of_subfolder,
        "a SentenceTransformer with tokenizer=": lambda: _of_folder(
            _limited(8), TEXT, tokenizer=words()
        ),
        "a CrossEncoder with a prompt": lambda: _of_folder(_prompted_cross(), PAIR),
        "a list of texts": _texts_of_folder,
        "a text-classification pipeline": _of_pipeline,
        "a model of transformers": bare,
    }.items():
        yield Case("folder", text, make)


def subclasses() -> Iterator[Case]:
    """Yield calls of the user's own subclasses."""

    def classifier(maker: Any) -> Any:
        return maker(model=bert("ForSequenceClassification"), tokenizer=words())

    def features(maker: Any, **settings: Any) -> Any:
        return maker(model=bert("Model"), tokenizer=words(), **settings)

    for text, make in {
        "preprocess that adds words": lambda: piped(classifier(own.Shouting), TEXT),
        "_sanitize_parameters with its default": lambda: piped(features(own.WithOptions), TEXT),
        "_sanitize_parameters with a setting": lambda: piped(
            features(own.WithOptions, words=5), TEXT
        ),
        "__call__ that adds words": lambda: piped(classifier(own.Calling), TEXT),
        "preprocess that takes a dict": lambda: piped(
            features(own.OwnKeys), {"question": PAIR[0], "passage": PAIR[1]}
        ),
        "_forward that never reaches the model": lambda: piped(
            classifier(own.Never), TEXT, expect={"required": "[Nn]ever|not run"}
        ),
        "__call__ that never reaches the model": lambda: piped(
            classifier(own.NeverReached),
            TEXT,
            expect={"required": "[Nn]ever|not run"},
        ),
        "preprocess that raises": lambda: piped(
            classifier(own.Raising), TEXT, expect={"required": "the text has no date|Raising"}
        ),
        "_forward that runs the model twice": lambda: piped(features(own.Twice), TEXT),
        "_forward that runs the model twice, part=1": lambda: piped(
            features(own.Twice), TEXT, part=1
        ),
        "a ChunkPipeline": lambda: piped(features(own.Chunks), TEXT),
        "a ChunkPipeline, part=1": lambda: piped(features(own.Chunks), TEXT, part=1),
        "part=5 of two": lambda: piped(
            features(own.Twice), TEXT, part=5, expect={"required": r"part.*(2|two)"}
        ),
        "_forward with inputs_embeds": lambda: piped(features(own.Embedded), TEXT),
        "SentenceTransformer with its own tokenize": lambda: encoded(
            _own_sentences("tokenize"), TEXT
        ),
        "SentenceTransformer with its own preprocess": lambda: encoded(
            _own_sentences("preprocess"), TEXT
        ),
        "SentenceTransformer with its own encode": lambda: encoded(_own_sentences("encode"), TEXT),
        "Transformer module with its own preprocess": lambda: encoded(_own_module(), TEXT),
        "a module of torch around a model": _own_torch_module,
        "an object with encode, which adds words": lambda: _own_object("encode"),
        "an object that is called, which adds words": lambda: _own_object("__call__"),
        "a method of an object, which adds words": lambda: _own_object("embed"),
        "a function with a pipeline inside": _own_function,
        "a module of torch whose forward takes texts": _text_module,
        "a Trainer with its tokenizer": _trainer,
        "postprocess that runs the model again": lambda: piped(features(own.AgainAfter), TEXT),
        "preprocess with a keyword argument at the call": lambda: _with_suffix(
            own.Suffixed(model=bert("Model"), tokenizer=words())
        ),
        "preprocess that returns two texts in a batch": lambda: piped(
            features(own.Both), TEXT, expect={"batch": True}
        ),
        "preprocess that returns a truncated copy, a list of texts": lambda: piped(
            features(own.WithOptions, words=4), [TEXT, PAIR[1]]
        ),
        "an own pipeline that raises for a text in a list": lambda: piped(
            classifier(own.Raising), [TEXT, TEXT], expect={"required": "the text has no date"}
        ),
        "a subclass of a tokenizer": _own_tokenizer,
        "a text generation pipeline with its own preprocess": lambda: piped(
            own.Continuing(model=llama(), tokenizer=pieces(), max_new_tokens=4, do_sample=False),
            TEXT,
            generate=4,
        ),
    }.items():
        yield Case("own subclass", text, make)


def _own_sentences(name: str) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    def change(text: str) -> str:
        return f"passage the {text}"

    class Own(SentenceTransformer):  # type: ignore[misc, unused-ignore]
        """SentenceTransformer that adds words."""

        if name == "encode":

            def encode(self, inputs: Any, *args: Any, **options: Any) -> Any:
                return super().encode([change(text) for text in inputs], *args, **options)

        if name == "tokenize":

            def tokenize(self, texts: Any, **options: Any) -> Any:
                return super().tokenize([change(text) for text in texts], **options)

        if name == "preprocess":

            def preprocess(self, inputs: Any, *args: Any, **options: Any) -> Any:
                return super().preprocess([change(text) for text in inputs], *args, **options)

    transformer = Transformer(saved())
    pooling = Pooling(transformer.get_word_embedding_dimension())
    return Own(modules=[transformer, pooling], device="cpu")


def _own_module() -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    class Own(Transformer):  # type: ignore[misc, unused-ignore]
        """Module that adds words."""

        def preprocess(self, inputs: Any, *args: Any, **options: Any) -> Any:
            return super().preprocess([f"query {text}" for text in inputs], *args, **options)

    transformer = Own(saved())
    pooling = Pooling(transformer.get_word_embedding_dimension())
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


def _with_suffix(pipe: Any) -> Call:
    arguments = {"inputs": TEXT, "suffix": "hello world"}
    return piped(pipe, arguments, own=lambda: pipe(TEXT, suffix="hello world"))


def _own_object(name: str) -> Call:
    """Return a call of an object of the user's own class.

    Which of its methods reads texts is not known, so a note must say that it was not run.
    """

    class Embedder:
        def __init__(self) -> None:
            self.model = bert("Model")
            self.tokenizer = words()

        def encode(self, texts: list[str]) -> Any:
            changed = [f"query : {text}" for text in texts]
            return self.model(**self.tokenizer(changed, return_tensors="pt"))

        def embed(self, text: str) -> Any:
            return self.encode([text])

        def __call__(self, text: str) -> Any:
            return self.encode([text])

    embedder = Embedder()
    given = embedder.embed if name == "embed" else embedder
    return Call(
        embedder.model,
        lambda: embedder.embed(TEXT),
        lambda: extract(given, TEXT, progress=False),
        note="Embedder",
    )


def _own_function() -> Call:
    """Return a call of a function, which is not a model."""
    pipe = pipeline("feature-extraction", model=bert("Model"), tokenizer=words())

    def read(text: str) -> Any:
        return pipe(f"query : {text}")

    return Call(
        pipe.model,
        lambda: read(TEXT),
        lambda: extract(read, TEXT, progress=False),
        error="model must be",
    )


def _text_module() -> Call:
    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = bert("Model")
            self.tokenizer = words()

        def forward(self, text: str) -> Any:
            return self.encoder(**self.tokenizer(f"query : {text}", return_tensors="pt"))

    module = Reader()
    return Call(
        module.encoder,
        lambda: module(TEXT),
        lambda: extract(module, TEXT, progress=False),
        note="Reader",
    )


def _trainer() -> Call:
    tokenizer, model = words(model_max_length=6), bert("ForSequenceClassification")
    arguments = transformers.TrainingArguments(
        output_dir=str(new_folder("run")), report_to="none", use_cpu=True
    )
    trainer = transformers.Trainer(model=model, args=arguments, processing_class=tokenizer)
    return Call(
        model,
        lambda: model(**tokenizer(TEXT, return_tensors="pt")),
        lambda: extract(trainer, TEXT, progress=False),
    )


def _own_torch_module() -> Call:
    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = bert("Model")
            self.tokenizer = words()

    module = Around()
    return Call(
        module.encoder,
        lambda: module.encoder(**module.tokenizer(TEXT, return_tensors="pt")),
        lambda: extract(module, TEXT, progress=False),
    )


def _own_tokenizer() -> Call:
    class Lowering(transformers.PreTrainedTokenizerFast):  # type: ignore[misc, unused-ignore]
        def __call__(self, text: Any = None, *args: Any, **options: Any) -> Any:
            return super().__call__(f"hello {text}", *args, **options)

    tokenizer = Lowering(
        tokenizer_object=words().backend_tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    pipe = pipeline(
        "text-classification", model=bert("ForSequenceClassification"), tokenizer=tokenizer
    )
    return piped(pipe, TEXT)


def cases() -> Iterator[Case]:
    """Yield all cases of this file."""
    yield from sentence_transformers()
    yield from cross_encoders()
    yield from others()
    yield from folders()
    yield from subclasses()
