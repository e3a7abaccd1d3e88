"""Each block of code in docs/from-elsewhere.md gives the weights of the library it is about.

A small class replaces TransformerLens, because that library needs hundreds of megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from attnviz import AttentionRecord
from models.image_models import softmaxes

DOCUMENT = Path(__file__).parents[2] / "docs" / "from-elsewhere.md"
FIRST = "Attention from other libraries"


def blocks_of(section: str) -> list[str]:
    """Return the blocks of Python code in the section with the title `section`."""
    parts = re.split(r"^#+ (.+)$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return re.findall(r"```python\n(.+?)```", sections[section], re.DOTALL)


def run(section: str, names: Mapping[str, Any]) -> tuple[list[AttentionRecord], dict[str, Any]]:
    """Run the code blocks below the title of the page, and then those of a section.

    Return the records that the blocks assign to `record`, and all variables.
    """
    namespace = dict(names)
    records = []
    for code in [*blocks_of(FIRST), *blocks_of(section)]:
        namespace.pop("record", None)
        exec(code, namespace)  # noqa: S102 - the document's own code
        if "record" in namespace:
            records.append(namespace["record"])
    return records, namespace


def shares(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(*shape, generator=generator), dim=-1)


def test_every_section_with_code_is_run_here() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    own = Path(__file__).read_text(encoding="utf-8")
    for section in sections:
        assert not blocks_of(section) or f'run("{section}"' in own, section


def test_the_code_for_weights_and_signed_numbers_returns_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Outside of a notebook, a view is written into the folder for temporary files.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"tokens": list("abcde")}
    weights = [shares(heads, 5, 5, seed=heads) for heads in (2, 3)]
    changes = [weights[0] - shares(2, 5, 5)]
    (record,), _ = run("Weights", names | {"weights": weights})
    (signed,), _ = run("Differences, effects, attributions", names | {"changes": changes})
    for computed, expected in zip(
        [*record.to_numpy(), *signed.to_numpy()], weights + changes, strict=True
    ):
        assert_allclose(computed, expected)
    assert (signed.stack().signed, signed.stack().measure) == (True, "difference")
    assert list(tmp_path.rglob("*.html"))


def rows_of_axes() -> list[tuple[str, str]]:
    """Return the axes and the code in each row of the page's table of axes."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(r"^\| (\(.+?\).*?) \| `(.+?)` \|$", text, re.MULTILINE)


@pytest.mark.parametrize(("axes", "code"), rows_of_axes())
def test_each_row_of_the_table_of_axes_orders_the_axes(axes: str, code: str) -> None:
    names = axes[1 : axes.index(")")].split(", ")
    layers, heads = (3 if "layers" in names else 1), (2 if "heads" in names else 1)
    whole = shares(layers, heads, 5, 5)
    # Permute the axes of `whole` to the order in the table.
    lengths = {"layers": 0, "heads": 1, "queries": 2, "keys": 3}
    weights = whole.permute(
        *[lengths[name] for name in names if name in lengths],
        *[axis for name, axis in lengths.items() if name not in names],
    )
    weights = weights.reshape([whole.shape[lengths[name]] if name != "1" else 1 for name in names])
    for array in (weights, weights.numpy()):
        argument = eval(code, {"weights": array})  # noqa: S307 - the document's
        record = AttentionRecord.from_weights(argument, list("abcde"))
        for computed, expected in zip(record.to_numpy(), whole, strict=True):
            assert_allclose(computed, expected)


def test_the_code_for_queries_and_keys_computes_their_weights() -> None:
    queries = [torch.randn(4, 5, 8) for _ in range(2)]
    keys = [torch.randn(2, 5, 8) for _ in range(2)]
    names = {"queries": queries, "keys": keys, "tokens": list("abcde")}
    (record,), _ = run("Queries and keys", names)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for weights, q, k in zip(record.to_numpy(), queries, keys, strict=True):
        logits = q.double() @ k.double().repeat_interleave(2, 0).mT / 8**0.5
        assert_allclose(weights, logits.masked_fill(ahead, -torch.inf).softmax(-1), atol=1e-6)


class LensCache(dict[str, torch.Tensor]):
    """Activations by name. The tuple ("q", 1) means the name "blocks.1.attn.hook_q"."""

    def __getitem__(self, name: Any) -> torch.Tensor:
        if isinstance(name, tuple):
            name = f"blocks.{name[1]}.attn.hook_{name[0]}"
        return super().__getitem__(name)


class Lens:
    """Substitute for a TransformerLens model, with the attributes that the page uses."""

    def __init__(self, tokens: list[str], *, rotary: bool) -> None:
        kind = "rotary" if rotary else "standard"
        self.cfg = SimpleNamespace(n_layers=2, positional_embedding_type=kind)
        self.tokens, self.cache = tokens, LensCache()
        ahead = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
        for layer in range(2):
            # Queries and keys are (batch, tokens, heads, head_dim).
            queries, keys = 2 * torch.randn(2, 1, len(tokens), 4, 8)
            logits = torch.einsum("bqhd,bkhd->bhqk", queries, keys) / 8**0.5
            pattern = logits.masked_fill(ahead, -torch.inf).softmax(dim=-1)
            vectors = {"rot_q": queries, "rot_k": keys} if rotary else {"q": queries, "k": keys}
            # In a rotary model, "q" and "k" are not rotated and do not give the weights. Here, "q"
            # has the keys and "k" the reversed queries, which do not give the weights either.
            stored = {"q": keys, "k": queries.flip(1), "pattern": pattern, **vectors}
            for name, tensor in stored.items():
                self.cache[f"blocks.{layer}.attn.hook_{name}"] = tensor

    def to_str_tokens(self, _: str) -> list[str]:
        return self.tokens

    def run_with_cache(
        self, _: str, names_filter: Callable[[str], bool] = lambda _: True
    ) -> tuple[None, LensCache]:
        selected = {name: value for name, value in self.cache.items() if names_filter(name)}
        return None, LensCache(selected)


@pytest.mark.parametrize("rotary", [False, True])
def test_the_code_for_transformer_lens_returns_its_patterns(*, rotary: bool) -> None:
    torch.manual_seed(0)
    lens = Lens(["The", " animal", " was", " tired"], rotary=rotary)
    records, _ = run("TransformerLens", {"model": lens, "text": "The animal was tired"})
    for record in records:
        assert tuple(record.tokens)[1] == "·animal"
        for layer, weights in enumerate(record.to_numpy()):
            assert_allclose(weights, lens.cache["pattern", layer][0], atol=1e-5)
    # The first record was made from weights, and the second from queries and keys.
    assert [record.stack().has_vectors for record in records] == [False, True]


def test_the_code_for_multihead_attention_returns_its_weights() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for module in (attention, *(block.self_attn for block in encoder.layers)):
            # Make weights differ from uniform weights and between layers, so that errors are
            # visible.
            module.in_proj_weight.normal_(std=0.5)
            module.in_proj_bias.normal_()
    x = torch.randn(1, 6, 16)
    attn_mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    tokens = list("abcdef")
    names = {"attention": attention, "encoder": encoder, "x": x, "attn_mask": attn_mask}
    (of_one, of_encoder), scope = run("`torch.nn.MultiheadAttention`", names | {"tokens": tokens})
    with torch.no_grad():
        own = attention(x, x, x, average_attn_weights=False)[1]
        assert_allclose(of_one.to_numpy()[0], own[0], atol=1e-6)
        states = x
        for block, weights in zip(encoder.layers, of_encoder.to_numpy(), strict=True):
            own = block.self_attn(*[states] * 3, attn_mask=attn_mask, average_attn_weights=False)[1]
            assert_allclose(weights, own[0], atol=1e-5)
            states = block(states, src_mask=attn_mask)
    # The code has removed its hooks, so another forward adds nothing to `received`.
    count = len(scope["received"])
    encoder(x, mask=attn_mask)
    assert len(scope["received"]) == count == 3


@pytest.mark.parametrize(
    ("name", "options", "whole"),
    [
        ("vit_tiny_patch16_224", {"qk_norm": True}, True),
        ("vit_base_patch16_siglip_224", {"embed_dim": 192, "num_heads": 3}, True),
        # This model rotates queries and keys after the code has read them. Only the record of
        # stored weights is right.
        ("eva02_tiny_patch14_224", {"patch_size": 16}, False),
    ],
)
def test_the_code_for_timm_returns_the_models_own_weights(
    timm: Any, name: str, options: dict[str, Any], *, whole: bool
) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, img_size=64, depth=2, **options).eval()
    with torch.no_grad():
        for block in model.blocks:
            for module in block.attn.modules():
                if isinstance(module, nn.Linear):
                    module.weight.normal_(std=0.15)
    image = torch.randn(1, 3, 64, 64)
    expected = softmaxes(model, image, model.blocks)
    assert len(expected) == 2
    picture = np.zeros((64, 64, 3), np.uint8)
    (computed, stored), _ = run("timm", {"model": model, "image": image, "picture": picture})
    for record in (computed, stored) if whole else (stored,):
        (grid,) = record.tokens.grids
        assert (grid.start, grid.stop) == (model.num_prefix_tokens, len(record.tokens))
        assert len(record.images) == 1
        for weights, own in zip(record.to_numpy(), expected, strict=True):
            assert own.max() > 0.3
            assert_allclose(weights, own[0], atol=1e-5)
    # The record of queries and keys is wrong for the model that rotates them.
    assert np.allclose(computed.to_numpy()[0], expected[0][0], atol=1e-3) == whole
