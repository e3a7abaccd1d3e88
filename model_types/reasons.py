"""Reasons why weights of a model were not compared, in words for docs/coverage.md.

The reason in a `Row` may be an error message of attnviz, of transformers or of Python. These
messages are written for somebody who runs the model, and name modules and tensor shapes.
"""

from __future__ import annotations

import re

from model_types.markdown import short
from model_types.rows import Row

#: Reason of a model that returns no weights, but whose attention is in the record.
READ = "attnviz reads them, but the models return no weights to compare with"
#: Reason of a model without attention.
NO_ATTENTION = "no attention between tokens, and no linear layers with a known rule"

_IN_CHUNKS = "local attention in chunks: each chunk of queries attends to its own keys and to "
_BOTH_WAYS = (
    "its encoder has modules that attend from the image to the text and, with the same products of "
    "queries and keys, from the text to the image"
)
#: What the attention computes that a record cannot contain yet, by model type.
REFUSED = {
    "autoformer": "auto-correlation: values are shifted in time, and a shift has the same weight "
    "for all tokens",
    "gemma3n_audio": f"{_IN_CHUNKS}those of earlier and later chunks of the sound",
    "gemma4_audio": f"{_IN_CHUNKS}those of earlier and later chunks of the sound",
    "grounding-dino": _BOTH_WAYS,
    "longt5": "local attention that also attends to summaries of chunks (with this setting)",
    "mm-grounding-dino": _BOTH_WAYS,
    "mra": "attention that is approximated at several resolutions, by a function for GPUs",
    "pegasus_x": f"{_IN_CHUNKS}global tokens that are not in the text",
    "prophetnet": "its decoder predicts several next tokens at once, and has separate queries for "
    "each of them",
    "rwkv": "recurrent layers, whose rule attnviz does not read",
    "seggpt": "its first layers read the image and its prompt as two examples, and later layers as "
    "one",
    "swiftformer": "additive attention: a token has one weight for all queries",
    "xlstm": "recurrent layers, whose rule attnviz does not read",
    "yoso": "attention that is estimated from hashes, without weights",
}

# Patterns in error messages, and what they mean.
_ERRORS = {
    "million parameters": "too large for a tiny model",
    r"^AttributeError: '\w*Output\w*' object": "fails in this version of transformers",
}


def in_words(row: Row) -> str:
    """Return in plain words why the weights of a model were not compared, or are not right."""
    reason = row.reason
    if reason != READ and row.result not in ("not built", "no inputs"):
        return REFUSED.get(row.model_type) or statement(reason)
    missing = re.search(r"requires the (\w+) library|No module named '([^']+)'", reason)
    if "names no model class" in reason or (missing and "transformers.models" in missing[0]):
        return "transformers has no class for it alone"
    if missing:
        return f"needs {missing[1] or missing[2]}, which is not installed"
    for pattern, words in _ERRORS.items():
        if re.search(pattern, reason):
            return words
    if re.match(r"\w+Error: ", reason):
        return {
            "not built": "its configuration cannot be made small by the general rules",
            "no inputs": "needs other inputs than the test makes",
        }[row.result]
    return short(reason)


def statement(message: str) -> str:
    """Return what an error message says about a model, without its first words and the remedy.

    Left out are the class of the error, the argument, the path of the module, and all sentences but
    the first.

    >>> statement("NotImplementedError: model: layers.0.attn (Attn) attends twice. Pass others.")
    'attends twice'
    """
    text = " ".join(message.split())
    text = re.sub(r"^(\w+Error: )?(with use_cache=True: )?((model|changes|inputs): )?", "", text)
    text = re.sub(r"^\w+(\.\w+)+ (\(\w+\) )?(?=[a-z])", "", text)
    text = re.split(r"\.(?: (?=[A-Z`])|$)", text, maxsplit=1)[0]
    return re.sub(r", which cannot be (shown|changed)( yet)?$", "", text).replace("<", "&lt;")
