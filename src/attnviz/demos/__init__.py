"""Four tiny trained models that are part of attnviz and need no network.

``"decoder"``
    A GPT-2 (3 layers of 4 heads, one token for each word). It repeats earlier sequences with an
    induction circuit, which was part of its initialisation, and determines which noun "it" means.
``"encoder-decoder"``
    A BART (2 + 2 layers of 4 heads, one token for each character) that converts dates from nine
    formats to ISO format. Its cross-attention finds the month and the day.
``"vision"``
    A ViT (3 layers of 4 heads, 64 patches) that names the single shape in a small image. Its CLS
    token attends to the patches of the shape.
``"vision-language"``
    A LLaVA (a CLIP tower of 3 layers, a Llama of 3 layers, 4 heads each, 64 patches) that receives
    an image of two shapes and completes "the red". One head finds the shape of that colour.

`checkpoints` loads the decoder before training, or ``"induction"``, a GPT-2 (2 layers of 4 heads),
at five training steps. It starts from random weights and develops induction heads.

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

NAMES = ("decoder", "encoder-decoder", "vision", "vision-language")
#: Training steps that `checkpoints` can load.
CHECKPOINTS = {"decoder": (0,), "induction": (0, 100, 200, 300, 480)}

_HERE = Path(__file__).parent


def _checked(name: str, names: tuple[str, ...] = NAMES) -> str:
    if name not in names:
        demo = ", ".join(repr(demo) for demo in names)
        raise ValueError(f"name must be one of the demo models {demo}, not {name!r}")
    return name


def _without_pillow(name: str, error: ImportError) -> ImportError:
    return ImportError(
        f"The demo model {name!r} has image input and needs pillow: pip install 'attnviz[vision]'",
        name=error.name,
    )


def load(name: str) -> tuple[Any, Any]:
    """Load a demo model and its tokenizer or processor.

    Parameters
    ----------
    name : str
        "decoder", "encoder-decoder", "vision" or "vision-language".

    Returns
    -------
    model : PreTrainedModel
        A GPT2LMHeadModel, BartForConditionalGeneration, ViTForImageClassification or
        LlavaForConditionalGeneration, on the CPU, in float32 and in evaluation mode. The weights
        were stored as float16.
    reader : PreTrainedTokenizerFast, ViT's image processor or LlavaProcessor
        The tokenizer of a text model, or the processor of a model with image input.

    Raises
    ------
    ValueError
        If the demo model does not exist.
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

    readers: dict[str, Any] = {
        "decoder": transformers.PreTrainedTokenizerFast,
        "encoder-decoder": transformers.PreTrainedTokenizerFast,
        "vision": transformers.AutoImageProcessor,
        "vision-language": transformers.AutoProcessor,
    }
    if name.startswith("vision"):
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise _without_pillow(name, error) from error
    reader = readers[name].from_pretrained(folder)
    classes: dict[str, Any] = {
        "decoder": transformers.GPT2LMHeadModel,
        "encoder-decoder": transformers.BartForConditionalGeneration,
        "vision": transformers.ViTForImageClassification,
        "vision-language": transformers.LlavaForConditionalGeneration,
    }
    return _loaded(classes[name], folder), reader


def checkpoints(name: str, after: Sequence[int]) -> tuple[dict[int, Any], Any]:
    """Load a small model at several steps of its training.

    Parameters
    ----------
    name : str
        "decoder" or "induction".
    after : sequence of int
        Numbers of training steps. 0 is the model before training. "decoder" has only 0, and
        "induction" has 0, 100, 200, 300 and 480.

    Returns
    -------
    models : dict of int to PreTrainedModel
        The model by number of steps, in the order of training, on the CPU, in float32 and in
        evaluation mode. The weights were stored as float16.
    tokenizer : PreTrainedTokenizerFast
        The tokenizer of the models.

    Raises
    ------
    ValueError
        If the model does not exist, or `after` is empty or contains an unknown step.

    Notes
    -----
    The decoder is initialised as an induction circuit, so it has an induction head before training.
    "induction" starts from random weights.

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
    from attnviz.extraction.models import without_loading_bar

    with without_loading_bar():
        return kind.from_pretrained(folder, dtype="float32", local_files_only=True).eval()


def example(name: str) -> dict[str, Any]:
    """Return an input that shows what a demo model has learned.

    It is not part of the training data: its nouns, its date and its image were held out.

    Parameters
    ----------
    name : str
        "decoder", "encoder-decoder", "vision" or "vision-language".

    Returns
    -------
    dict
        Arguments of `attnviz.extract` and of the `show_*` functions. "inputs" is a sentence that
        continues with "street", a written date, a PIL image (32 x 32) of a triangle, or such an
        image of two shapes with a text. "target" is the date in ISO format for the encoder-decoder,
        and the answer for the vision-language model. The other models have no target.

    Raises
    ------
    ValueError
        If the demo model does not exist.
    ImportError
        If the input contains an image and pillow is not installed.

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
        raise _without_pillow(name, error) from error
    with Image.open(_HERE / name / "example.png") as file:
        picture = file.convert("RGB")
    if name == "vision":
        return {"inputs": picture}
    return {"inputs": (picture, "the red"), "target": "triangle"}


def sentences() -> list[str]:
    """Return sixty sentences for the decoder, with pairs of nouns that were held out of training.

    Examples
    --------
    >>> len(sentences())
    60
    >>> sentences()[1]
    'on friday the lion did not take the box because it was too hot so the box was thrown away .'
    """
    return (_HERE / "decoder" / "sentences.txt").read_text(encoding="utf-8").splitlines()
