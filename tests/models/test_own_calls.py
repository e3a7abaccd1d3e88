"""Records of wrappers show what the user's own call reads, or a note says how they differ.

The own call runs to its end, while copies of the arguments of the model's forwards are made
(`model_types.calls`). The weights of a record must equal those of an eager copy of the model that
gets these arguments. ``make calls`` compares 400 calls in this way.
"""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from attnviz import extract
from model_types.calls import generations, images, sounds, texts, uses, wrappers
from model_types.calls.judge import Call, Case, judged
from model_types.calls.parts import TEXT, bert, words

pytest.importorskip("sentence_transformers")

FILES: tuple[Any, ...] = (texts, wrappers, generations, images, sounds, uses)

# Kind and words of the cases: of each kind of call, those whose settings are lost most easily.
SAME = """
text classification: truncation=True, max_length=5 at the object
text classification: a pair as a tuple
text classification: truncation=True of extract, max_length=6 at the object
token classification: model_max_length=5
token classification: stride=2, part=1
fill-mask: tokenizer_kwargs with truncation
feature extraction: tokenize_kwargs without special tokens
zero-shot classification: three labels at the call
zero-shot classification: labels at the object, part=2
text generation: prefix
text generation: repetition_penalty at the object
text generation: a chat that ends with the assistant
text generation: stop_sequence at the object
table question answering: one question
SentenceTransformer: MiniLM, 270 words
SentenceTransformer: max_seq_length = 8
SentenceTransformer: default_prompt_name
SentenceTransformer: encode_query as a method
CrossEncoder: max_length=12
CrossEncoder: prompts and default_prompt_name
SparseEncoder: SPLADE, max_seq_length
MultiVectorEncoder: max_seq_length
folder: a SentenceTransformer with both
folder: MiniLM, 270 words
image classification: an own subclass that crops
own subclass: _sanitize_parameters with a setting
own subclass: __call__ that adds words
own subclass: SentenceTransformer with its own encode
own subclass: _forward that runs the model twice
own subclass: _forward that runs the model twice, part=1
own subclass: _forward with inputs_embeds
own subclass: a method of an object, which adds words
generate, decoder-only: stop_strings
generate, BART: forced_bos_token_id and beams, a text that attnviz encodes
generate, Whisper: num_beams=3, language and task
target: Whisper
image classification: a phone photo, opened
keypoint matching: two images
image feature extraction: image_processor_kwargs do_normalize=False
zero-shot image classification: hypothesis_template at the call
image-text-to-text: a chat that ends with the assistant
document question answering: max_seq_len and doc_stride, part=1
speech recognition, CTC: chunk_length_s=1, part=1
speech recognition, Whisper: language and task at the object
head_statistics: text classification, max_length=6
head_statistics: image classification, a phone photo
extract_corpus: SentenceTransformer, default_prompt_name
intervene: CrossEncoder, max_length
head_effects: feature extraction, tokenize_kwargs
what-if in a view: SentenceTransformer, max_seq_length
show_head_view: text generation, prefix and penalty
live generation: text generation, prefix and penalty
""".strip().splitlines()

SAID = """
target: a pipeline of Whisper with language and task
text classification: truncation=4 of extract, max_length=6 at the object
text classification: tokenizer= of extract beside the object's
own subclass: preprocess that raises
own subclass: _forward that never reaches the model
own subclass: part=5 of two
zero-shot classification: no labels
generate, decoder-only: num_beams=4, num_return_sequences=2
""".strip().splitlines()


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """All cases by their kind and words."""
    every = [case for file in FILES for case in file.cases()]
    return {f"{case.kind}: {case.words}": case for case in every}


@pytest.mark.parametrize("name", SAME)
def test_the_record_shows_what_the_own_call_reads(name: str, cases: dict[str, Case]) -> None:
    row = judged(cases[name])
    assert row.verdict == "same", row


@pytest.mark.parametrize("name", SAID)
def test_a_sentence_says_why_a_record_differs(name: str, cases: dict[str, Case]) -> None:
    row = judged(cases[name])
    assert row.verdict == "said", row


@pytest.mark.parametrize("truncation", [False, 5])
def test_the_comparison_notices_other_ids(truncation: bool | int) -> None:
    """The bare model of a pipeline reads the text without the pipeline's settings."""
    pipe = transformers.pipeline(
        "text-classification", model=bert("ForSequenceClassification"),
        tokenizer=words(truncation_side="left"), truncation=True, max_length=5,
    )  # fmt: skip

    def bare() -> Any:
        return extract(pipe.model, TEXT, tokenizer=words(), truncation=truncation, progress=False)

    case = Case("text classification", "", lambda: Call(pipe.model, lambda: pipe(TEXT), bare))
    assert judged(case).verdict == "silent"
