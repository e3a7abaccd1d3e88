"""Three tiny trained models that come with attnviz: no network, and something true to see.

``"decoder"``
    A GPT-2 (3 layers of 4 heads, one token a word). It repeats what it has seen by an induction
    circuit, initialised as one and then trained, and it finds out which noun "it" was.
``"encoder-decoder"``
    A BART (2 + 2 layers of 4 heads, one token a character) that turns dates written nine ways into
    ISO form; its cross attention finds the month and the day.
``"vision"``
    A ViT (3 layers of 4 heads, 64 patches) that names the one shape in a small picture; its CLS
    token attends to the patches where the shape lies.

``python -m attnviz.demos.train all`` trains them again.

>>> model, tokenizer = load("decoder")
>>> ids = tokenizer(example("decoder")["inputs"], return_tensors="pt")["input_ids"]
>>> tokenizer.decode(model(ids).logits[0, -1].argmax())
'street'
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "example", "load"]

NAMES = ("decoder", "encoder-decoder", "vision")

_HERE = Path(__file__).parent


def _checked(name: str) -> str:
    if name not in NAMES:
        known = ", ".join(repr(known) for known in NAMES)
        raise ValueError(f"name must be one of the demo models {known}; got {name!r}")
    return name


def _without_pillow(error: ImportError) -> ImportError:
    return ImportError(
        "The demo model 'vision' reads images, which needs pillow: pip install 'attnviz[vision]'",
        name=error.name,
    )


def load(name: str) -> tuple[Any, Any]:
    """Load a demo model and what makes its inputs.

    Parameters
    ----------
    name : str
        "decoder", "encoder-decoder" or "vision".

    Returns
    -------
    model : GPT2LMHeadModel, BartForConditionalGeneration or ViTForImageClassification
        On the CPU, float32, in evaluation mode. Its weights are stored as float16.
    reader : PreTrainedTokenizerFast or ViT's image processor
        The tokenizer of a text model, the image processor of the vision model.

    Raises
    ------
    ValueError
        If there is no such demo model.
    ImportError
        If the vision model is asked for and pillow is not installed.

    Examples
    --------
    >>> model, tokenizer = load("encoder-decoder")
    >>> written = tokenizer("3 March 2021", return_tensors="pt")
    >>> tokenizer.decode(model.generate(**written)[0], skip_special_tokens=True)
    '2021-03-03'
    """
    folder = _HERE / _checked(name)
    import transformers

    reader: Any
    if name == "vision":
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise _without_pillow(error) from error
        reader = transformers.AutoImageProcessor.from_pretrained(folder)
    else:
        reader = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    classes: dict[str, Any] = {
        "decoder": transformers.GPT2LMHeadModel,
        "encoder-decoder": transformers.BartForConditionalGeneration,
        "vision": transformers.ViTForImageClassification,
    }
    with _no_progress_bar():
        model = classes[name].from_pretrained(folder, dtype="float32", local_files_only=True)
    return model.eval(), reader


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep transformers' bar for loading weights away: there is nothing to wait for."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def example(name: str) -> dict[str, Any]:
    """Give an input that shows what a demo model has learned.

    Training never saw it: its pair of nouns, its day and its picture are held out.

    Parameters
    ----------
    name : str
        "decoder", "encoder-decoder" or "vision".

    Returns
    -------
    dict
        Arguments of `attnviz.extract` and of the `show_*` functions. "inputs" for all: a sentence
        that goes on with "street", a written date, or a PIL image of a triangle, 32 x 32. And
        "target" for the encoder-decoder: the same date in ISO form.

    Raises
    ------
    ValueError
        If there is no such demo model.
    ImportError
        If the vision model's is asked for and pillow is not installed.

    Examples
    --------
    >>> example("encoder-decoder")
    {'inputs': 'Sunday, 17 November 2019', 'target': '2019-11-17'}
    """
    if _checked(name) == "decoder":
        return {"inputs": "the animal did not cross the street because it was too wide so the"}
    if name == "encoder-decoder":
        return {"inputs": "Sunday, 17 November 2019", "target": "2019-11-17"}
    try:
        from PIL import Image
    except ImportError as error:
        raise _without_pillow(error) from error
    return {"inputs": Image.fromarray(_triangle())}


def _triangle() -> Any:
    import numpy as np

    from attnviz.demos.datasets.shapes import SHAPES, draw_shapes

    # A seed that no training uses.
    images, kinds, _ = draw_shapes(np.random.default_rng(7), 32)
    return images[int(np.flatnonzero(kinds == SHAPES.index("triangle"))[0])]
