"""Objects around a model prepare its input. They are observed without a trace, and the model waits.

`test_own_calls.py` compares records with what the own calls of such objects read.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.extraction.inputs.own_call import observe
from attnviz.extraction.models import load
from attnviz.extraction.modules import modules_of
from models.counting import Operations
from models.interrupts import state_of

TEXT = "The animal didn't cross the street."


@pytest.fixture(scope="module")
def classifier(checkpoint_folder: Path) -> Any:
    transformers.set_seed(0)
    return transformers.AutoModelForSequenceClassification.from_pretrained(
        checkpoint_folder, id2label={0: "entailment", 1: "neutral", 2: "contradiction"}
    ).eval()


def pipeline_of(model: Any, folder: Path, task: str, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu", **options)


class Forwards:
    """Counter of the forwards of a model that reach its first layer."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        model.register_forward_hook(self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1


@pytest.fixture
def zero_shot(classifier: Any, checkpoint_folder: Path) -> Any:
    labels = ["cats", "dogs", "birds"]
    task = "zero-shot-classification"
    return pipeline_of(classifier, checkpoint_folder, task, candidate_labels=labels)


def test_the_model_runs_once(zero_shot: Any) -> None:
    """The own call, with three candidates, runs no forward. The extraction runs one."""
    forwards = Forwards(zero_shot.model)
    record = av.extract(zero_shot, TEXT, part=2)
    assert forwards.count == 1
    assert "birds" in record.tokens.text
    assert (
        "ZeroShotClassificationPipeline calls the model 3 times for this input. The record shows "
        "call 3 (part=2). Pass part=0 to part=2 for other calls."
    ) in record.notes


def test_a_part_that_does_not_exist_is_an_error(zero_shot: Any) -> None:
    with pytest.raises(ValueError, match=r"part=3: Zero\w+ calls the model 3 times .* 0 to 2\."):
        av.extract(zero_shot, TEXT, part=3)
    with pytest.raises(ValueError, match=r"part=1 selects a call of an object .* Remove part="):
        av.extract(zero_shot.model, TEXT, tokenizer=zero_shot.tokenizer, part=1)
    part: Any = "last"
    with pytest.raises(TypeError, match="part='last' must be a whole number"):
        av.extract(zero_shot, TEXT, part=part)


def test_all_calls_of_an_own_class_are_parts(classifier: Any, checkpoint_folder: Path) -> None:
    """The second call depends on the result of the first, so the own call runs to its end."""

    class Twice(transformers.TextClassificationPipeline):  # type: ignore[misc]
        def _forward(self, model_inputs: Any) -> Any:
            best = self.model(**model_inputs).logits.argmax()
            model_inputs["input_ids"][0, -2] = 2_000 + best
            return self.model(**model_inputs)

    pipe = pipeline_of(classifier, checkpoint_folder, "text-classification", pipeline_class=Twice)
    with torch.no_grad():
        best = classifier(**pipe.tokenizer(TEXT, return_tensors="pt")).logits.argmax()
    records = [av.extract(pipe, TEXT, part=part) for part in (0, 1)]
    ids = pipe.tokenizer(TEXT)["input_ids"]
    assert [record.tokens.ids for record in records] == [
        tuple(ids),
        (*ids[:-2], 2_000 + int(best), ids[-1]),
    ]


def test_a_corpus_says_which_call_of_each_text_it_has(
    classifier: Any, checkpoint_folder: Path
) -> None:
    class PerToken(transformers.TextClassificationPipeline):  # type: ignore[misc]
        def _forward(self, model_inputs: Any) -> Any:
            for _ in model_inputs["input_ids"][0]:
                outputs = self.model(**model_inputs)
            return outputs

    pipe = pipeline_of(
        classifier, checkpoint_folder, "text-classification", pipeline_class=PerToken
    )
    corpus = av.extract_corpus(pipe, [TEXT, f"{TEXT} {TEXT}"], part=1, progress=False)
    assert corpus.notes == [
        "Some texts: PerToken calls the model … times for this input. Only one call is read "
        "(part=1)."
    ]


def test_an_own_call_leaves_no_trace(zero_shot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    before = dict(vars(zero_shot)), state_of([zero_shot.model])
    names = set(vars(zero_shot.model))
    av.extract(zero_shot, TEXT)
    assert dict(vars(zero_shot)) == before[0]
    assert set(vars(zero_shot.model)) == names
    assert state_of([zero_shot.model]) == before[1]
    assert "TOKENIZERS_PARALLELISM" not in os.environ
    # The pipeline itself still works.
    assert zero_shot(TEXT)["labels"]


def test_an_error_of_the_object_leaves_no_trace(classifier: Any, checkpoint_folder: Path) -> None:
    class Failing(transformers.TextClassificationPipeline):  # type: ignore[misc]
        def preprocess(self, _inputs: Any, **_options: Any) -> Any:
            raise RuntimeError("no such column")

    pipe = pipeline_of(
        classifier, checkpoint_folder, "text-classification", pipeline_class=Failing, top_k=2
    )
    before = dict(vars(pipe)), set(vars(classifier))
    record = av.extract(pipe, TEXT)
    assert (dict(vars(pipe)), set(vars(classifier))) == before
    [note] = [note for note in record.notes if "Failing" in note]
    assert "because it raised RuntimeError: no such column. The record shows" in note


@pytest.mark.parametrize("training", [False, True])
def test_the_mode_of_a_sentence_transformer_is_restored(
    checkpoint_folder: Path, training: bool
) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu").train(training)
    encoder[0].auto_model.encoder.layer[2].eval()
    before = state_of([encoder])
    record = av.extract(encoder, TEXT)
    assert state_of([encoder]) == before
    # `encode` itself switches to evaluation mode, and stays in it.
    assert any("training mode" in note for note in record.notes) == training


def test_other_threads_run_the_model(classifier: Any, checkpoint_folder: Path) -> None:
    """While a pipeline prepares an input in one thread, another thread gets a full forward."""
    pause, resume = threading.Event(), threading.Event()

    class Slow(transformers.TextClassificationPipeline):  # type: ignore[misc]
        def preprocess(self, inputs: Any, **options: Any) -> Any:
            if inputs == "slow":
                pause.set()
                assert resume.wait(30)
            return super().preprocess(inputs, **options)

    pipe = pipeline_of(classifier, checkpoint_folder, "text-classification", pipeline_class=Slow)
    loaded = load(pipe)
    calls: list[Any] = []
    thread = threading.Thread(target=lambda: calls.append(observe(loaded, lambda: pipe("slow"))))
    thread.start()
    assert pause.wait(30)
    [result] = pipe(["fast"])
    with torch.no_grad():
        logits = classifier(**pipe.tokenizer("fast", return_tensors="pt")).logits
    resume.set()
    thread.join(30)
    assert logits.shape == (1, 3)
    assert result["score"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)
    [(observed, error)] = calls
    assert error is None
    assert [len(call.arguments["input_ids"][0]) for call in observed] == [3]


@pytest.fixture
def adapted(classifier: Any) -> Iterator[Any]:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"])
    model = peft.get_peft_model(classifier, settings)
    yield model
    model.unload()


@pytest.mark.parametrize("kind", ["adapter", "compiled"])
def test_a_pipeline_around_a_wrapped_model(
    kind: str, classifier: Any, checkpoint_folder: Path, request: pytest.FixtureRequest
) -> None:
    pipe = pipeline_of(
        classifier, checkpoint_folder, "text-classification", truncation=True, max_length=5
    )
    pipe.model = (
        request.getfixturevalue("adapted")
        if kind == "adapter"
        else torch.compile(classifier, backend="eager")
    )
    record = av.extract(pipe, TEXT)
    assert record.tokens.text == ("[CLS]", "the", "animal", "didn", "[SEP]")
    assert (
        "The text was truncated to the first 5 of its 11 tokens, including special ones."
        in record.notes
    )


def test_tensors_of_an_own_call_can_be_used_for_gradients(checkpoint_folder: Path) -> None:
    """`encode` runs in inference mode, whose tensors cannot be saved for a backward pass."""
    library = pytest.importorskip("sentence_transformers")
    encoder = library.CrossEncoder(str(checkpoint_folder), device="cpu", max_length=7)
    pair = ("the cat sat", "on the mat")
    result = av.attribute(encoder, pair, answer=lambda outputs: outputs.logits[0, 0])
    assert len(result.tokens) == 7


def test_a_method_is_an_own_call(checkpoint_folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(
        str(checkpoint_folder), device="cpu", prompts={"query": "question: "}
    )
    ids = encoder.tokenizer(f"question: {TEXT}")["input_ids"]
    for model, inputs in (
        (encoder.encode_query, TEXT),
        (encoder, {"inputs": TEXT, "task": "query"}),
        (encoder, {"inputs": TEXT, "prompt_name": "query"}),
    ):
        assert av.extract(model, inputs).tokens.ids == tuple(ids)


def test_a_call_of_a_part_of_the_model_is_an_error() -> None:
    class Features(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
        def _forward(self, model_inputs: Any) -> Any:
            return self.model.text_model(**model_inputs)

    _, processor = av.demos.load("vision-language")
    texts = transformers.CLIPTextConfig(
        hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=16
    )
    config = transformers.CLIPConfig(text_config=texts.to_dict(), projection_dim=8)
    pipe = Features(model=transformers.CLIPModel(config).eval(), tokenizer=processor.tokenizer)
    with pytest.raises(ValueError, match=r"Features does not call CLIPModel .* part text_model"):
        av.extract(pipe, "the cat")


def test_an_own_object_is_named_if_it_was_not_run(classifier: Any, checkpoint_folder: Path) -> None:
    class Embedder:
        def __init__(self) -> None:
            self.model = classifier
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint_folder)

        def encode(self, text: str) -> Any:
            return self.model(**self.tokenizer(f"query: {text}", return_tensors="pt"))

    embedder = Embedder()
    record = av.extract(embedder, TEXT)
    assert record.tokens.ids == tuple(embedder.tokenizer(TEXT)["input_ids"])
    [note] = record.notes
    assert note.startswith("Embedder was not run: the record shows the text as its tokenizer")
    record = av.extract(embedder.encode, TEXT)
    assert record.tokens.ids == tuple(embedder.tokenizer(f"query: {TEXT}")["input_ids"])
    assert not record.notes


def test_a_note_names_a_folder_whose_settings_are_dropped(checkpoint_folder: Path) -> None:
    pytest.importorskip("sentence_transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint_folder)
    record = av.extract(checkpoint_folder, TEXT, tokenizer=tokenizer)
    assert any("SentenceTransformer" in note and "tokenizer= was" in note for note in record.notes)
    assert not av.extract(checkpoint_folder, TEXT).notes


class TestTwoModels:
    """A SentenceTransformer has a model for queries and one for documents."""

    @pytest.fixture(scope="class")
    def router(self, checkpoint_folder: Path) -> Any:
        library = pytest.importorskip("sentence_transformers")
        modules = pytest.importorskip("sentence_transformers.base.modules")
        parts = []
        for _ in range(2):
            transformer = modules.Transformer(str(checkpoint_folder))
            parts.append([transformer, library.models.Pooling(48)])
        for parameter in parts[1][0].model.parameters():
            parameter.data += 0.1 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(0)
            )
        router = modules.Router.for_query_document(*parts)
        prompts = {"query": "the street ", "document": ""}
        return library.SentenceTransformer(modules=[router], device="cpu", prompts=prompts).train()

    @pytest.mark.parametrize(
        ("task", "text"), [("query", "the street " + TEXT), ("document", TEXT)]
    )
    def test_a_method_selects_the_model(self, router: Any, task: str, text: str) -> None:
        record = av.extract(getattr(router, f"encode_{task}"), TEXT)
        model = router[0].sub_modules[task][0].model
        expected = av.extract(model, text, tokenizer=router.tokenizer)
        assert record.tokens == expected.tokens
        assert record.notes == expected.notes
        for layer in record.stack().layers:
            own = expected.stack().weights(layer=layer)
            assert (record.stack().weights(layer=layer) == own).all()
        assert all(module.training for module in router.modules())

    def test_without_a_method_the_error_names_the_remedy(self, router: Any) -> None:
        with pytest.raises(TypeError, match=r"contains 2 models\. Pass one of them, or a method"):
            av.extract(router, TEXT)


def test_several_texts_of_one_call_are_refused(checkpoint_folder: Path) -> None:
    """The library would read them as a pair if they were one text."""
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    with pytest.raises(ValueError, match=r"several inputs of encode.*one mapping for each"):
        av.extract(encoder, {"sentences": ["the cat", "the street"]})
    records = av.extract(encoder, [{"sentences": "the cat"}, {"sentences": "the street"}])
    assert [record.tokens for record in records] == [
        record.tokens for record in av.extract(encoder, ["the cat", "the street"])
    ]


def test_dicts_of_a_corpus_may_have_a_second_text(classifier: Any, checkpoint_folder: Path) -> None:
    pipe = pipeline_of(classifier, checkpoint_folder, "text-classification")
    rows = [{"text": "the cat", "text_pair": TEXT}, {"text": TEXT, "text_pair": "the street"}]
    own = [len(pipe.tokenizer(*row.values())["input_ids"]) for row in rows]
    queries = av.extract_corpus(pipe, rows, progress=False).points().query_text
    assert [int((queries == number).sum()) for number in range(2)] == own


class TestWorkBesideTheForward:
    """The cost of an extraction is that of one forward. Its other work is counted here."""

    @pytest.fixture(params=["model", "pipeline", "SentenceTransformer"])
    def arguments(self, request: pytest.FixtureRequest, checkpoint_folder: Path) -> dict[str, Any]:
        if request.param == "SentenceTransformer":
            library = pytest.importorskip("sentence_transformers")
            return {"model": library.SentenceTransformer(str(checkpoint_folder), device="cpu")}
        classifier = transformers.AutoModelForSequenceClassification.from_pretrained(
            checkpoint_folder
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint_folder)
        if request.param == "model":
            return {"model": classifier, "tokenizer": tokenizer}
        return {
            "model": transformers.pipeline(
                "text-classification", model=classifier, tokenizer=tokenizer, device="cpu"
            )
        }

    def test_a_second_extraction(self, arguments: dict[str, Any]) -> None:
        """The tokenizer is called once, and no code reads signatures or walks over the modules.

        `modules_of` is the walk of the package. Walks of torch and of the wrappers are not counted.
        Operations of torch and calls of functions of the package are counted, because their number
        does not depend on the machine.
        """
        loaded = load(**arguments)
        counts: Counter[str] = Counter()
        loaded.model.register_forward_hook(lambda *_: counts.update(["forwards"]))
        av.extract(**arguments, inputs=TEXT)
        counts.clear()
        package = str(Path(av.__file__).parent)
        kinds = {
            modules_of.__code__: "walks",
            torch.nn.Module.modules.__code__: "walks of torch",
            torch.nn.Module.named_modules.__code__: "walks of torch",
            inspect.signature.__code__: "signatures",
            type(loaded.tokenizer)._encode_plus.__code__: "tokenizer",
        }

        def count(frame: Any, event: str, _: object) -> None:
            kind = kinds.get(frame.f_code) if event == "call" else None
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            if kind == "tokenizer" or (kind is not None and caller.startswith(package)):
                counts[kind] += 1
            counts["calls"] += event == "call" and frame.f_code.co_filename.startswith(package)

        sys.setprofile(count)
        try:
            av.extract(**arguments, inputs=TEXT)
        finally:
            sys.setprofile(None)
        # Two of the walks are those in which a wrapper is observed.
        assert counts.pop("walks") <= (1 if "tokenizer" in arguments else 4)
        assert counts.pop("calls") <= 2_300
        assert counts == {"forwards": 1, "tokenizer": 1}

    def test_the_operations_of_a_second_extraction(self, arguments: dict[str, Any]) -> None:
        loaded = load(**arguments)
        inputs = loaded.tokenizer(TEXT, return_tensors="pt")
        layers = loaded.model.config.num_hidden_layers
        av.extract(**arguments, inputs=TEXT)
        with torch.no_grad(), Operations() as own:
            loaded.model(**inputs)
        with Operations() as extraction:
            av.extract(**arguments, inputs=TEXT)
        # About 20 for each layer, and the comparison of all layers at once.
        assert extraction.count - own.count <= 60 + 22 * layers


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_note_on_padding_that_a_list_would_have(checkpoint_folder: Path, side: str) -> None:
    """The checkpoint has positions, which padding on the left moves."""
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    encoder.tokenizer.padding_side = side
    alone, beside = encoder.encode(["the cat"]), encoder.encode(["the cat", TEXT])
    changes = not np.allclose(alone[0], beside[0], atol=1e-4)
    assert changes == (side == "left")
    for record in av.extract(encoder, ["the cat", TEXT]):
        assert any("puts padding before it" in note for note in record.notes) == changes
    assert not any("padding" in note for note in av.extract(encoder, "the cat").notes)
