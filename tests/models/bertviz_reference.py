"""Access to functions, models and tokenizers of BertViz, with which tests compare attnviz."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers


def _without_downloads() -> None:
    """Replace the download libraries that BertViz imports with empty modules."""
    # Import accelerate first, because it fails if it finds an empty module boto3.
    importlib.import_module("accelerate")
    for name in ("boto3", "botocore", "botocore.exceptions"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["botocore.exceptions"].__dict__.setdefault("ClientError", OSError)


def function_of_bertviz(name: str) -> Callable[..., Any]:
    """Return a function of BertViz: "head_view", "model_view" or "neuron_view.show"."""
    _without_downloads()
    module, _, function = f"bertviz.{name}".rpartition(".")
    view: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return view


def bundled_classes() -> Any:
    """Return the module with BertViz's own classes of models and tokenizers."""
    _without_downloads()
    return importlib.import_module("bertviz.transformers_neuron_view")


def in_classes_of_bertviz(name: str, model: Any, configuration: Path) -> Any:
    """Return an instance of BertViz's class ``f"{name}Model"`` with the parameters of `model`."""
    classes = bundled_classes()
    config = getattr(classes, f"{name}Config")(
        str(configuration), output_attentions=True, torchscript=False
    )
    config.n_ctx = getattr(config, "n_positions", None)
    theirs = getattr(classes, f"{name}Model")(config).eval()
    # Only the causal masks of BertViz's GPT-2, named "attn.bias", may be missing in `model`.
    missing = theirs.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert all(key.endswith("attn.bias") for key in missing)
    return theirs


def trained_bert(folder: Path) -> tuple[Any, Any]:
    """Return the BERT model and the tokenizer saved in `folder`, in BertViz's own classes."""
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = bundled_classes().BertTokenizer(str(folder / "vocab.txt"))
    return in_classes_of_bertviz("Bert", model, folder / "config.json"), tokenizer
