"""Times the public functions as the README calls them: first and second call, nothing else given.

    cd tests && python -m benchmarks.calls [turns]

Each function gets a model of its own, so that its first call finds nothing of another's.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import string
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import attnviz as av
from benchmarks.figures import multiple, seconds, spread
from benchmarks.section import Section

_VOCABULARY = 128_000
_TEXT = "the animal did not cross the street because it was too wide"
_TEXTS = [_TEXT.replace("animal", word) for word in ("dog", "cat", "bird", "horse")]
_EDGE = av.Knockout(queries=-1, keys=0)
CALLS: dict[str, Callable[[Any], object]] = {
    "extract(model, text)": lambda model: av.extract(model, _TEXT),
    "show_head_view(model, text)": lambda model: av.show_head_view(model, _TEXT),
    "show_model_view(model, text)": lambda model: av.show_model_view(model, _TEXT),
    "show_neuron_view(model, text)": lambda model: av.show_neuron_view(model, _TEXT),
    "show_matrix_view(model, text)": lambda model: av.show_matrix_view(model, _TEXT),
    "dashboard(model, text)": lambda model: av.dashboard(model, _TEXT),
    "show_compare_view(model, a, b)": lambda model: av.show_compare_view(model, *_TEXTS[:2]),
    "show_embedding_view(model, texts)": lambda model: av.show_embedding_view(model, _TEXTS),
    "show_head_atlas(model, texts)": lambda model: av.show_head_atlas(model, _TEXTS),
    "compare(model, a, b)": lambda model: av.compare(model, *_TEXTS[:2]),
    "extract_corpus(model, texts)": lambda model: av.extract_corpus(model, _TEXTS),
    "head_statistics(model, texts)": lambda model: av.head_statistics(model, _TEXTS),
    "intervene(model, text, change)": lambda model: av.intervene(model, _TEXT, _EDGE),
    "head_effects(model, text)": lambda model: av.head_effects(model, _TEXT),
    "token_effects(model, text)": lambda model: av.token_effects(model, _TEXT),
    "attribute(model, text)": lambda model: av.attribute(model, _TEXT),
}


def save_model(folder: str) -> None:
    """Save a small Llama and a tokenizer whose vocabulary is as large as that of Llama 3."""
    letters = string.ascii_lowercase
    words = ["<unk>", *letters]
    pairs = []
    for length in range(2, 5):
        for parts in itertools.product(letters, repeat=length):
            if len(words) < _VOCABULARY:
                words.append("".join(parts))
                pairs.append(("".join(parts[:-1]), parts[-1]))
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
    config = transformers.LlamaConfig(vocab_size=_VOCABULARY, num_attention_heads=4, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def main(turns: str = "2") -> None:
    """Write the seconds of each function's first call, and of those after it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        for name, call in CALLS.items():
            model = transformers.AutoModelForCausalLM.from_pretrained(folder)
            took = []
            for _ in range(int(turns) + 1):
                start = time.perf_counter()
                # Outside of a notebook a view writes a page, and prints where it is.
                with contextlib.redirect_stdout(io.StringIO()):
                    call(model)
                took.append(time.perf_counter() - start)
            figures = {"first_s": took[0], "again_s": took[1:]}
            sys.stdout.write(json.dumps({name: figures}) + "\n")
            sys.stdout.flush()


def rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """A function each."""
    lines = [["", "first call", "second call", "first / second"]]
    for name, took in figures.items():
        first, again = took["first_s"], took["again_s"]
        ratio = multiple(first / sorted(again)[len(again) // 2])
        lines.append([f"`{name}`", spread(first, seconds), spread(again, seconds), ratio])
    return lines


SECTION = Section(
    name="calls",
    title="Functions as the README calls them",
    words="""A Llama of 4 layers of 4 heads with random weights and a vocabulary of 128,000, texts
of 12 words, one thread. Only model and text are given, so the tokenizer is read from the model's
folder. Each function has a model of its own. A `show_` function also writes its page, as in a
script.""",
    module="benchmarks.calls",
    rows=rows,
    runs=(("2",),),
    quick=(("1",),),
    seconds=25,
)


if __name__ == "__main__":
    main(*sys.argv[1:])
