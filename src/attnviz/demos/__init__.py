"""Tiny trained models that are part of attnviz, so that examples run without a network.

``"decoder"``
    A GPT-2 with 3 layers of 4 heads. Each word is one token. If a sequence of tokens is repeated,
    the model predicts the tokens of the repetition. It also determines to which noun "it" refers.
    An induction head attends to the token after an earlier occurrence of the current token. Before
    the training, the weights were set so that the model has such a head.
``"hybrid"``
    A Qwen3-Next with 3 linear layers and a softmax layer, of 4 heads each. Each word is one token.
    If a list of words is repeated, the model predicts the words of the repetition. The heads of the
    softmax layer attend to the word after an earlier occurrence of the current word.
``"encoder-decoder"``
    A BART with 2 encoder layers and 2 decoder layers of 4 heads. Each character is one token. The
    model converts dates in nine formats to the ISO format. When it writes the month and the day,
    its cross-attention attends to the month and the day in the input.
``"vision"``
    A ViT with 3 layers of 4 heads and 64 patches. It classifies the shape in a small image. Its
    class token (CLS) attends to the patches of the shape.
``"vision-language"``
    A LLaVA that consists of a CLIP encoder and a Llama, with 3 layers of 4 heads each and 64
    patches. It reads an image of two shapes and the text "the red", and names the red shape. One
    head attends to the shape of the named colour.

``"induction"`` is a GPT-2 with 2 layers of 4 heads. Its training began with random weights, and
induction heads formed during the training. The function `checkpoints` loads the weights of this
model at five steps of the training. It also loads the weights of ``"decoder"`` before its training.

>>> model, tokenizer = load("decoder")
>>> ids = tokenizer(example("decoder")["inputs"], return_tensors="pt")["input_ids"]
>>> tokenizer.decode(model(ids).logits[0, -1].argmax())
'street'
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CHECKPOINTS", "NAMES", "checkpoints", "example", "load", "sentences"]

# For each demo model, the names of two classes of transformers: that of the model, and that of its
# tokenizer or processor.
_CLASSES = {
    "decoder": ("GPT2LMHeadModel", "PreTrainedTokenizerFast"),
    "hybrid": ("Qwen3NextForCausalLM", "PreTrainedTokenizerFast"),
    "encoder-decoder": ("BartForConditionalGeneration", "PreTrainedTokenizerFast"),
    "vision": ("ViTForImageClassification", "AutoImageProcessor"),
    "vision-language": ("LlavaForConditionalGeneration", "AutoProcessor"),
}
NAMES = tuple(_CLASSES)
#: For each model with checkpoints, the training steps whose weights `checkpoints` can load. Step 0
#: is before training.
CHECKPOINTS = {"decoder": (0,), "induction": (0, 100, 200, 300, 480)}

_HERE = Path(__file__).parent


def _checked(name: str, names: tuple[str, ...] = NAMES) -> str:
    if name not in names:
        demo = ", ".join(repr(demo) for demo in names)
        raise ValueError(f"name must be one of the demo models {demo}, not {name!r}")
    return name


def load(name: str) -> tuple[Any, Any]:
    """Load a demo model and its tokenizer or processor.

    Parameters
    ----------
    name : str
        Name of the model: "decoder", "hybrid", "encoder-decoder", "vision" or "vision-language".

    Returns
    -------
    model : PreTrainedModel
        A GPT2LMHeadModel, Qwen3NextForCausalLM, BartForConditionalGeneration,
        ViTForImageClassification or LlavaForConditionalGeneration, on the CPU, in float32 and in
        evaluation mode. The weights are stored as float16, and converted to float32 when they are
        loaded.
    reader : PreTrainedTokenizerFast, ViT's image processor or LlavaProcessor
        The tokenizer of a text model, or the processor of a model with image input.

    Raises
    ------
    ValueError
        If no demo model has this name.
    ImportError
        If the model has image input and pillow is not installed.

    Examples
    --------
    >>> model, tokenizer = load("encoder-decoder")
    >>> written = tokenizer("3 March 2021", return_tensors="pt")
    >>> tokenizer.decode(model.generate(**written)[0], skip_special_tokens=True)
    '2021-03-03'
    """
    folder = _HERE / _checked(name)
    import transformers

    model, reader = (getattr(transformers, kind) for kind in _CLASSES[name])
    return _loaded(model, folder), reader.from_pretrained(folder)


def checkpoints(name: str, after: Sequence[int]) -> tuple[dict[int, Any], Any]:
    """Load a small model at several steps of its training.

    Parameters
    ----------
    name : str
        Name of the model: "decoder" or "induction".
    after : sequence of int
        Training steps after which the weights were stored. 0 is before training. The only step of
        "decoder" is 0. The steps of "induction" are 0, 100, 200, 300 and 480.

    Returns
    -------
    models : dict of int to PreTrainedModel
        One model for each step, in ascending order of the steps. The models are on the CPU, in
        float32 and in evaluation mode. The weights are stored as float16, and converted to float32
        when they are loaded.
    tokenizer : PreTrainedTokenizerFast
        The tokenizer of the models.

    Raises
    ------
    ValueError
        If no model has this name, or if `after` is empty or contains a step that is not stored.

    Notes
    -----
    The weights of "decoder" at step 0 are not random. They are set so that the model has an
    induction head. The weights of "induction" are random at step 0.

    Examples
    --------
    >>> models, tokenizer = checkpoints("induction", [0, 480])
    >>> list(models)
    [0, 480]
    """
    existing = CHECKPOINTS[_checked(name, tuple(CHECKPOINTS))]
    steps = [step for step in existing if step in after]
    if not steps or set(after) - set(existing):
        raise ValueError(
            f"after={after!r} must be a non-empty list of training steps of {name!r}: "
            f"{', '.join(map(str, existing))}"
        )
    import transformers

    folders = {step: _HERE / f"{name}-checkpoints" / f"step-{step:03}" for step in steps}
    models = {
        step: _loaded(transformers.GPT2LMHeadModel, folder) for step, folder in folders.items()
    }
    return models, transformers.PreTrainedTokenizerFast.from_pretrained(folders[steps[0]])


def _loaded(kind: Any, folder: Path) -> Any:
    from transformers.utils import logging

    # Small models load at once, so hide the progress bar for loading weights.
    had_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return kind.from_pretrained(folder, dtype="float32", local_files_only=True).eval()
    finally:
        if had_bar:
            logging.enable_progress_bar()


def example(name: str) -> dict[str, Any]:
    """Return an input for a demo model that shows what the model has learned.

    The training data contain neither the pair of nouns, nor the date, nor the images of these
    inputs.

    Parameters
    ----------
    name : str
        Name of the model: "decoder", "hybrid", "encoder-decoder", "vision" or "vision-language".

    Returns
    -------
    dict
        Keyword arguments ``inputs`` and ``target`` of `attnviz.extract` and of the `show_*`
        functions. They depend on the model:

        - "decoder": the beginning of a sentence that continues with "street", without a target.
        - "hybrid": a list of ten words, followed by its first five words, without a target. The
          list continues with "garden".
        - "encoder-decoder": a date with the name of the month. The target is this date in ISO
          format.
        - "vision": a PIL image of a triangle, 32 x 32 pixels, without a target.
        - "vision-language": a pair of a PIL image of two shapes and the text "the red". The target
          is the name of the red shape.

    Raises
    ------
    ValueError
        If no demo model has this name.
    ImportError
        If the input contains an image and pillow is not installed.

    Examples
    --------
    >>> example("encoder-decoder")
    {'inputs': 'Sunday, 17 November 2019', 'target': '2019-11-17'}
    """
    if _checked(name) == "decoder":
        return {"inputs": "the animal did not cross the street because it was too wide so the"}
    if name == "hybrid":
        words = "river bread tired lamp wolf garden soup key ticket horse".split()
        return {"inputs": " ".join(words + words[:5])}
    if name == "encoder-decoder":
        return {"inputs": "Sunday, 17 November 2019", "target": "2019-11-17"}
    from PIL import Image

    with Image.open(_HERE / name / "example.png") as file:
        picture = file.convert("RGB")
    if name == "vision":
        return {"inputs": picture}
    return {"inputs": (picture, "the red"), "target": "triangle"}


def sentences() -> list[str]:
    """Return sixty sentences for the decoder.

    The training data do not contain the pairs of nouns in these sentences.

    Examples
    --------
    >>> len(sentences())
    60
    >>> sentences()[1]
    'on friday the lion did not take the box because it was too hot so the box was thrown away .'
    """
    return (_HERE / "decoder" / "sentences.txt").read_text(encoding="utf-8").splitlines()
