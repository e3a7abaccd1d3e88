"""A note names the attention modules of the user's own code that are not in the record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from attnviz import extract
from models.make_models import make_model

WIDTH = 48
NOT_SHOWN = "The weights cannot be read and are not shown."
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5]])


class Wrapper(nn.Module):
    """Module of a user: an encoder of transformers, and parts around it."""

    attention: Any
    head: Any
    attention_norm: Any

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.encoder = make_model("bert").bert
        for name, part in parts.items():
            setattr(self, name, part)


class AttentionPooling(nn.Module):
    """Pooling whose class has a telling name."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return (functional.softmax(self.score(states), dim=1) * states).sum(1)


class Pooler(nn.Module):
    """Pooling by a learned query."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(states @ self.query, dim=1)[..., None] * states).sum(1)


class Mixer(nn.Module):
    """Attention without a telling name."""

    def __init__(self) -> None:
        super().__init__()
        self.together = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*self.together(states).chunk(3, -1))


class InlinePooling(Wrapper):
    """Wrapper that pools by attention in its own code."""

    def __init__(self) -> None:
        super().__init__(attention=nn.Linear(WIDTH, 1))

    def forward(self, ids: torch.Tensor) -> Any:
        states = self.encoder(ids)[0]
        return (self.attention(states).softmax(1) * states).sum(1)


class Classifier(Wrapper):
    """Wrapper with a softmax that is no attention."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__(head=nn.Linear(WIDTH, 3), attention_norm=nn.LayerNorm(WIDTH), **parts)

    def forward(self, ids: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:
        states = self.encoder(ids, attention_mask=attention_mask)[0]
        return functional.softmax(self.head(self.attention_norm(states[:, 0])), dim=-1)


class Experts(nn.Module):
    """Mixture of experts: its softmax is over experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.softmax(self.gate(states), dim=-1)


class Transitions(nn.Module):
    """Conditional random field."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(3, 3))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(states[..., None] + self.scores, dim=-1)


class AttentiveClassifier(Wrapper):
    """Wrapper with a telling name, but no attention around the encoder."""


class OwnModel(transformers.BertPreTrainedModel):  # type: ignore[misc] # it is Any here
    """Model of a user with two poolings. The second never runs."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = transformers.BertModel(config)
        self.pool = Pooler()
        self.unused = nn.MultiheadAttention(WIDTH, 4)
        self.post_init()

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **_: Any) -> Any:
        states = self.bert(input_ids, attention_mask=attention_mask)[0]
        return self.pool(states)


def multi_head() -> nn.Module:
    return nn.MultiheadAttention(WIDTH, 4)


def layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)


def notes_on_attention(model: Any) -> list[str]:
    return [note for note in extract(model, IDS).notes if "also attend" in note]


def own_model() -> Any:
    torch.manual_seed(0)
    return OwnModel(make_model("bert").config).eval()


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Wrapper(pooler=nn.ModuleDict({"attn": multi_head()})), "pooler.attn (MultiheadAttention)"),
        (Wrapper(top=layer()), "top.self_attn (MultiheadAttention)"),
        (Wrapper(pool=AttentionPooling()), "pool (AttentionPooling)"),
        (Wrapper(pool=Pooler()), "pool (Pooler)"),
        (Wrapper(mixer=Mixer()), "mixer (Mixer)"),
        (
            Wrapper(attention=nn.Sequential(nn.Linear(WIDTH, 1), nn.Softmax(dim=1))),
            "attention (Sequential)",
        ),
        (Classifier(attn=multi_head()), "attn (MultiheadAttention)"),
        (
            Wrapper(top=transformers.BertModel(make_model("bert").config).encoder.layer[0]),
            "top.attention.self (BertSelfAttention)",
        ),
        (InlinePooling(), "The code of the model (InlinePooling)"),
    ],
)
def test_attention_around_the_model_is_named(model: Any, named: str) -> None:
    assert notes_on_attention(model) == [f"{named} also attends. {NOT_SHOWN}"]


def test_layers_are_named_together() -> None:
    assert notes_on_attention(Wrapper(top=nn.TransformerEncoder(layer(), 3))) == [
        f"top.layers.*.self_attn (MultiheadAttention) also attend in layers 0 to 2. {NOT_SHOWN}"
    ]


def test_a_model_of_the_user() -> None:
    """`pool` computes its softmax in its own code, and `unused` does not run."""
    for model, path in ((own_model(), ""), (nn.ModuleList([own_model()]), "0.")):
        assert notes_on_attention(model) == [
            f"{path}pool (Pooler) also attends. {NOT_SHOWN}",
            f"{path}unused (MultiheadAttention) also attends. {NOT_SHOWN}",
        ]


def test_a_module_of_sentence_transformers(checkpoint_folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    width = encoder[0].auto_model.config.hidden_size
    top = nn.TransformerEncoderLayer(width, 2, 64)
    whole = library.SentenceTransformer(modules=[encoder[0], top, encoder[1]], device="cpu")
    assert notes_on_attention(encoder) == []
    assert notes_on_attention(whole) == [
        f"1.self_attn (MultiheadAttention) also attends. {NOT_SHOWN}"
    ]


def trainer_of(model: Any, folder: Path) -> Any:
    arguments = transformers.TrainingArguments(output_dir=str(folder), report_to="none")
    return transformers.Trainer(model=model, args=arguments)


def test_a_trainer_of_a_model_of_the_user(tmp_path: Path) -> None:
    assert notes_on_attention(trainer_of(own_model(), tmp_path)) == notes_on_attention(own_model())
    assert notes_on_attention(trainer_of(make_model("bert"), tmp_path)) == []


@pytest.mark.parametrize(
    "model",
    [
        Wrapper(),
        Classifier(),
        AttentiveClassifier(head=nn.Linear(WIDTH, 3)),
        Wrapper(experts=Experts()),
        Wrapper(field=Transitions(), top=nn.LSTM(WIDTH, WIDTH)),
        Wrapper(head=nn.Sequential(nn.Linear(WIDTH, 3), nn.Softmax(dim=-1))),
        Wrapper(top=nn.Conv1d(WIDTH, WIDTH, 3)),
        nn.Sequential(make_model("bert").bert, nn.Dropout(0.1), nn.Linear(WIDTH, 3)),
        nn.DataParallel(make_model("bert")),
        torch.compile(make_model("bert"), backend="eager"),
        SimpleNamespace(encoder=Wrapper().encoder, head=nn.Linear(WIDTH, 3)),
        *map(make_model, ["bert", "roberta", "gpt2", "llama", "mistral", "bloom", "deberta-v2"]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_modules_are_not_named(model: Any) -> None:
    assert notes_on_attention(model) == []


def test_adapters_are_not_named() -> None:
    peft = pytest.importorskip("peft")
    for config in (
        peft.LoraConfig(target_modules=["query", "value"]),
        peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
    ):
        model = transformers.BertForSequenceClassification(make_model("bert").config)
        adapted = peft.get_peft_model(model, config)
        assert notes_on_attention(adapted) == []
        assert notes_on_attention(nn.ModuleDict({"model": adapted})) == []
