"""`extract_corpus` reads texts in every form until it has enough queries and keys (points)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from attnviz import Corpus, demos, extract, extract_corpus, head_statistics
from attnviz.extraction.models import _load_saved

TEXTS = [
    "the cat sat",
    "the animal did not cross the street because it was too wide",
    "mary gave a drink to john",
    "the dog",
] * 10


@pytest.fixture
def forwards(decoder: tuple[Any, Any]) -> Iterator[list[int]]:
    """List that gets the number of tokens, with padding, of each text that the decoder reads."""
    counted: list[int] = []

    def note(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        num_texts, length = (args or (options["input_ids"],))[0].shape
        counted.extend([length] * num_texts)

    handle = decoder[0].register_forward_pre_hook(note, with_kwargs=True)
    yield counted
    handle.remove()


def read(decoder: tuple[Any, Any], texts: Any, **options: Any) -> Corpus:
    return extract_corpus(decoder[0], texts, tokenizer=decoder[1], progress=False, **options)


def test_a_corpus_has_the_record_of_each_text(decoder: tuple[Any, Any]) -> None:
    corpus = read(decoder, TEXTS[:4])
    own = extract(decoder[0], TEXTS[:4], tokenizer=decoder[1], progress=False)
    assert (corpus.text_indices, corpus.total_texts, corpus.model) == ((0, 1, 2, 3), 4, "decoder")
    assert corpus.names == ("the cat sat", TEXTS[1][:39] + "…", TEXTS[2], "the dog")
    for record, alone in zip(corpus.records, own, strict=True):
        assert record.tokens == alone.tokens
        for layer in (0, 1, 2):
            weights = alone.stack().weights(layer=layer)
            assert_allclose(record.stack().weights(layer=layer), weights, atol=1e-5)


def test_reading_ends_with_enough_points(decoder: tuple[Any, Any], forwards: list[int]) -> None:
    corpus = read(decoder, TEXTS, max_points=100)
    assert 90 < len(corpus.points()) <= 100
    assert len(corpus.points()) == corpus.points().total_points
    # The model may read up to four texts more: texts that do not fit into `max_points`, and the
    # shortest text of a batch a second time, alone, as a check.
    assert len(corpus) <= len(forwards) <= len(corpus) + 4
    assert len(corpus) < 20
    assert corpus.total_texts == 40
    assert [record.tokens.text for record in corpus.records] == [
        extract(decoder[0], TEXTS[at], tokenizer=decoder[1]).tokens.text
        for at in corpus.text_indices
    ]


def test_the_seed_chooses_a_random_order(decoder: tuple[Any, Any]) -> None:
    one, again, other = (
        read(decoder, TEXTS, max_points=100, seed=seed).text_indices for seed in (1, 1, 2)
    )
    assert one == again == tuple(sorted(one)) != other
    assert one != tuple(range(len(one)))


class Million:
    """A sequence of a million texts. `num_computed` counts the texts that were read."""

    def __init__(self) -> None:
        self.num_computed = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> str:
        self.num_computed += 1
        return TEXTS[index % 40]


def test_only_as_many_texts_are_read_as_needed(decoder: tuple[Any, Any]) -> None:
    texts = Million()
    corpus = read(decoder, texts, max_points=60, columns={"number": range(1_000_000)})
    assert len(corpus) <= texts.num_computed < 20
    assert corpus.total_texts == 1_000_000
    numbers = corpus.column(None, "number").queries
    assert set(numbers.tolist()) == set(corpus.text_indices)


def test_a_first_text_above_the_limit_is_kept_in_part(
    decoder: tuple[Any, Any], forwards: list[int]
) -> None:
    corpus = read(decoder, ["the cat sat on it " * 10] * 5, max_points=20)
    assert len(forwards) == 1
    assert (len(corpus), len(corpus.points()), corpus.points().whole) == (1, 20, False)


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["the cat", "", None, " \n", "the dog"], "3 texts are left out: empty."),
        (
            pd.Series(["the cat", float("nan"), None, pd.NA, "the dog"], index=list("vwxyz")),
            "3 texts are left out: empty.",
        ),
        (["the cat", "the " * 200, "the dog"], "1 text is left out: too long for the model."),
    ],
)
def test_texts_that_cannot_be_read_are_left_out_and_counted(
    decoder: tuple[Any, Any], texts: Any, note: str
) -> None:
    corpus = read(decoder, texts)
    assert corpus.text_indices == (0, len(texts) - 1)
    assert corpus.notes[-1] == note
    assert corpus.num_skipped == len(texts) - 2


def test_texts_without_room_for_the_generated_tokens_are_left_out(
    decoder: tuple[Any, Any],
) -> None:
    """The model has 128 positions."""
    corpus = read(decoder, ["the cat", "the " * 20, "the dog"], generate=120)
    assert corpus.text_indices == (0, 2)
    assert corpus.notes[-1] == "1 text is left out: too long for the model."
    with pytest.raises(ValueError, match=r"texts\[1\]: generate: 128 tokens are too many"):
        read(decoder, ["the cat", "the dog"], generate=128)


def test_the_patches_of_images_are_points() -> None:
    model, processor = demos.load("vision")
    picture = demos.example("vision")["inputs"]
    turned = [picture, picture.rotate(90), picture.rotate(180)]
    corpus = extract_corpus(model, turned, processor=processor, max_points=300, progress=False)
    # An image has 65 queries and 65 keys (CLS and 64 patches), so two images fit into 300 points.
    assert len(corpus.points()) == 2 * 2 * 65
    for record, index in zip(corpus.records, corpus.text_indices, strict=True):
        assert_array_equal(record.images[0], np.asarray(turned[index].convert("RGB")))


def test_a_model_is_loaded_once(checkpoint_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    def counting(source: str, *arguments: Any, **options: Any) -> Any:
        loads.append(source)
        return _load_saved(source, *arguments, **options)

    monkeypatch.setattr("attnviz.extraction.models._load_saved", counting)
    corpus = extract_corpus(checkpoint_folder, TEXTS[:3], progress=False)
    assert len(loads) == 1
    assert corpus.stack().heads_per_layer == (12,) * 6
    assert corpus.names[0] == "the cat sat"


def test_a_dataset_is_read_with_its_columns(decoder: tuple[Any, Any]) -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["bad", "good"]),
            "score": datasets.Value("float64"),
        }
    )
    rows = [{"text": text, "label": at % 3 - 1, "score": at / 2} for at, text in enumerate(TEXTS)]
    dataset = datasets.Dataset.from_list(rows, features=features)
    corpus = read(decoder, dataset, max_points=100, columns=["label", "score"])
    assert corpus.total_texts == 40
    texts = corpus.points().query_text
    scores = corpus.column(None, "score").queries
    assert_array_equal(scores, [corpus.text_indices[text] / 2 for text in texts])
    label = corpus.column(None, "label")
    assert label.categories == ("bad", "good")
    # In the dataset, -1 stands for an unknown class.
    assert_array_equal(label.queries, [corpus.text_indices[text] % 3 - 1 for text in texts])
    assert read(decoder, dataset["text"], max_points=100).text_indices == corpus.text_indices
    with pytest.raises(ValueError, match="'topic' is not one of the columns of the dataset"):
        read(decoder, dataset, columns=["topic"])
    with pytest.raises(TypeError, match="texts is a mapping of 'train'"):
        read(decoder, datasets.DatasetDict(train=dataset))
    with pytest.raises(TypeError, match=r"list\(texts\.take\(1000\)\) for a stream"):
        read(decoder, dataset.to_iterable_dataset())


def test_a_table_is_read_by_its_column(decoder: tuple[Any, Any]) -> None:
    """The argument `column` names the column of the texts. The default is "text"."""
    reviews = pd.DataFrame(
        {"review": TEXTS[:4], "label": ["a", "b", "a", "b"], "text": ["the dog"] * 4},
        index=list("wxyz"),
    )
    corpus = read(decoder, reviews, column="review", columns=["label"])
    assert corpus.names == read(decoder, TEXTS[:4]).names
    label = corpus.column(None, "label")
    assert_array_equal(label.queries, corpus.points().query_text % 2)
    assert read(decoder, reviews[["review", "text"]]).names == ("the dog",) * 4
    rows = reviews.to_dict("records")
    assert read(decoder, rows, column="review").names == corpus.names
    with pytest.raises(ValueError, match="column='text': the table has the columns 'review'"):
        read(decoder, reviews[["review"]])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"texts": []}, ValueError, "texts is empty. Pass a list of texts"),
        ({"texts": "the cat"}, TypeError, r"texts is one text\. Pass a list, \[text\]"),
        ({"texts": iter(TEXTS)}, TypeError, r"has no random access\. Pass list\(texts\)"),
        (
            {"texts": ["", None, "the " * 200]},
            ValueError,
            "all 3 are empty .*200 tokens are too",
        ),
        ({"texts": [["the cat", "the dog"]]}, TypeError, "Pass each one as a separate text"),
        ({"columns": {"a": [1]}}, ValueError, r"columns\['a'\] has 1 values, but there are 40"),
        ({"columns": ["a"]}, ValueError, "'a' must be a column of the dataset, but texts"),
        ({"target": "the cat"}, ValueError, "target must be a list .* not one string"),
    ],
)
def test_bad_arguments_are_refused_before_the_model_runs(
    decoder: Any, forwards: list[int], options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        read(decoder, **{"texts": TEXTS, **options})
    assert not forwards


def test_a_wrong_number_of_values_is_refused_at_the_first_text(
    decoder: tuple[Any, Any], forwards: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"columns\['a'\]\[\d+\] has 99 values but text \d+ has"):
        read(decoder, TEXTS, columns={"a": [[1] * 99] * 40})
    assert len(forwards) == 1


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("decoder", {"layers": [99]}, r"^texts\[\d\]: layers: layer 99 does not exist"),
        ("encoder-decoder", {}, r"^texts\[\d\]: target: .* needs a text"),
        ("encoder-decoder", {"target": ["", ""]}, r"^texts\[\d\]: target must be a string"),
    ],
)
def test_an_error_names_the_text_and_the_argument(
    kind: str, options: dict[str, Any], words: str
) -> None:
    model, tokenizer = demos.load(kind)
    with pytest.raises(ValueError, match=words):
        extract_corpus(model, ["3 March"] * 2, tokenizer=tokenizer, progress=False, **options)


def test_the_shortest_text_of_a_batch_is_also_read_alone(
    decoder: tuple[Any, Any], forwards: list[int]
) -> None:
    # The last forward reads "the dog" without padding, to check whether padding changes weights.
    read(decoder, ["the dog", "the cat sat", "the cat sat on"], max_points=1000)
    assert forwards[-3:] == [3, 3, 2]


def test_images_with_texts_are_read_one_at_a_time() -> None:
    model, processor = demos.load("vision-language")
    picture = demos.example("vision-language")["inputs"][0]
    pairs = [(picture, "the red"), (picture.rotate(90), "the blue"), (picture.rotate(180), "the")]
    alone = [extract(model, pair, processor=processor) for pair in pairs]
    sizes: list[int] = []
    model.register_forward_pre_hook(
        lambda _, args, options: sizes.append(len((args or tuple(options.values()))[0])),
        with_kwargs=True,
    )
    statistics = head_statistics(model, pairs, processor=processor, progress=False)
    assert set(sizes) == {1}
    expected = head_statistics(alone, progress=False)
    assert statistics.stack_names == expected.stack_names == ("self", "vision")
    for name in statistics.stack_names:
        means = np.concatenate(expected.stack(name).mean("entropy"))
        assert_allclose(np.concatenate(statistics.stack(name).mean("entropy")), means, atol=1e-4)
