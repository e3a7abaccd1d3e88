"""Python blocks of the documents run. Commands, names and local links in the documents exist.

tests/README.md describes the Markdown comments that skip the next block or contain hidden code.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import math
import re
import shlex
import tomllib
import unittest
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sybil import Document, Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

import attnviz as av
from attnviz import cli
from models.make_models import make_model

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
)
DOCUMENTS = (
    *PAGES,
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "js/README.md",
    "src/attnviz/README.md",
    "tests/README.md",
)
# Pages whose blocks run in another test file, with the name of the file.
RUN_ELSEWHERE = {
    "docs/from-bertviz.md": "test_from_bertviz.py",
    "docs/from-elsewhere.md": "test_from_elsewhere.py",
} | {
    path.relative_to(ROOT).as_posix(): "test_recipes.py" for path in ROOT.glob("docs/recipes/*.md")
}
RUN_ELSEWHERE["docs/recipes/diffusion.md"] = "test_diffusion.py"
# Pages whose blocks run for more than two seconds.
SLOW = {"docs/atlas.md", "docs/figures.md", "docs/why-this-label.md"}
# Allowed languages of blocks. Blocks with a misspelt language would silently not run.
LANGUAGES = {*"python js console html latex json markdown text toml yaml".split(), ""}


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def check_command(line: str) -> None:
    """Fail if an option, make target, extra or module of attnviz in a command does not exist."""
    for part in re.split(r" && | \| ", line):
        # Replace each shell variable with a number.
        program, *arguments = shlex.split(re.sub(r"\$[A-Z_]+", "3", part), comments=True)
        if program.endswith("python") and arguments[:1] == ["-m"]:
            program, *arguments = arguments[1:]
        if program == "attnviz":
            parse(arguments)
        elif program == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
            assert set(arguments) <= set(targets), line
        elif program == "pip":
            for names in re.findall(r"(?:^|\s)(?:\.|attnviz)\[(.+?)\]", " ".join(arguments)):
                assert set(names.split(",")) <= extras(), line
        elif program.startswith("attnviz."):
            assert importlib.util.find_spec(program) is not None, line


def parse(arguments: list[str]) -> None:
    """Check that `attnviz` accepts the arguments, but run no model."""
    if not any(argument.startswith("-") for argument in arguments):
        # A sentence may mention a command without its required arguments. --help needs none.
        arguments = [*arguments, "--help"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_write", lambda *_: Path("x.html"))
        patch.setattr(cli, "offer_file", lambda _: None)
        try:
            code = cli.main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    assert code == 0, arguments


def parsed(page: str) -> Document:
    """Parse a page with Sybil, which finds blocks of Python and comments that skip a block."""
    return Sybil(parsers=[SkipParser(), PythonCodeBlockParser()]).parse(ROOT / page)


def run(document: Document) -> dict[str, Any]:
    """Run all blocks of a page and return the names that they define."""
    for example in document.examples():
        # Sybil raises SkipTest for a block that a comment skips.
        with contextlib.suppress(unittest.SkipTest):
            example.evaluate()
    names: dict[str, Any] = document.namespace
    return names


@pytest.fixture
def reader(
    request: pytest.FixtureRequest,
    checkpoint_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], dict[str, Any]]:
    """Return a function that runs the blocks of a page with local models instead of hub models."""
    monkeypatch.chdir(tmp_path)
    # Outside of a notebook, views are written to the folder for temporary files.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def read(page: str) -> dict[str, Any]:
        text = (ROOT / page).read_text(encoding="utf-8")
        hub = "sentence-transformers/all-MiniLM-L6-v2"
        if f'"{hub}"' in text:
            (tmp_path / hub).parent.mkdir()
            (tmp_path / hub).symlink_to(checkpoint_folder, target_is_directory=True)
        if '"gpt2"' in text:
            make_model("gpt2").save_pretrained("gpt2")
            request.getfixturevalue("byte_tokenizer").save_pretrained("gpt2")
        return run(parsed(page))

    return read


def readme(names: Mapping[str, Any], printed: str) -> None:
    view = names["view"]
    assert view.record.tokens[view.token] == "it"
    weights = view.record.stack().weights(layer=3, head=1)[view.token]
    assert view.record.tokens[int(weights.argmax())] == "animal"
    assert float(weights.max()) == pytest.approx(0.68, abs=0.005)
    assert Path("head_view.html").is_file()


def install(names: Mapping[str, Any], printed: str) -> None:
    """Check that the table of docs/install.md lists all extras and nothing else."""
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text("utf-8"), re.M)
    assert set(table) == extras()


def reading_attention(names: Mapping[str, Any], printed: str) -> None:
    """Check the printed weights and effects of four heads of the demo decoder."""
    rows = re.findall(r"(\d\.\d): weight on street (\S+), effect without it +(\S+)", printed)
    weights = {head: float(weight) for head, weight, _ in rows}
    effects = {head: float(effect) for head, _, effect in rows}
    assert sorted(weights, key=lambda head: -weights[head])[:2] == ["1.0", "1.2"]
    assert min(effects, key=lambda head: effects[head]) == "1.0"
    assert abs(effects["1.2"]) < 0.1
    assert max(weights["0.0"], weights["0.3"]) < 0.02
    assert max(effects["0.0"], effects["0.3"]) < -10


def does_it_matter(names: Mapping[str, Any], printed: str) -> None:
    """Check the numbers that docs/does-it-matter.md quotes, except the noise, which varies."""
    page = " ".join((ROOT / "docs/does-it-matter.md").read_text(encoding="utf-8").split())
    quoted = re.search(r"It prints `(.+?) \((?:larger than the )?noise", page)
    assert quoted is not None
    assert quoted[1] in printed
    assert names["effects"][1][0] == pytest.approx(-14.85, abs=0.01)
    inputs = names["model"], names["text"]
    options = {"answer": ("street", "animal"), "tokenizer": names["tokenizer"]}
    after = av.Knockout(-1, "street", layers=1, heads=0, renormalize=False)
    assert av.intervene(*inputs, after, **options).effect.after == pytest.approx(0.98, abs=0.01)
    method: Any
    for method, expected in (("gradient", 0.63), ("integrated gradients", 14.04)):
        stack = av.attribute(*inputs, method=method, **options).stack()
        assert float(stack.weights(layer=1)[0].sum()) == pytest.approx(expected, abs=0.05)


def why_this_label(names: Mapping[str, Any], printed: str) -> None:
    """Check the numbers that docs/why-this-label.md quotes."""
    page = " ".join((ROOT / "docs/why-this-label.md").read_text(encoding="utf-8").split())
    for quoted in re.findall(r"[Pp]rints `(.+?)`", page):
        assert quoted in printed
    assert printed.splitlines()[3] == "triangle 0.0000"
    assert "mirrored: triangle 1.00\n" in printed
    assert re.findall(r"degrees: (\w+ \S+)", printed) == ["circle 1.00"] * 2
    stack = names["record"].stack()
    row = np.sort(stack.weights(layer=1, head=0)[0])
    assert row[-3:].sum() == pytest.approx(0.99, abs=0.005)
    assert names["heads"][1][0] == pytest.approx(8.0, abs=0.05)
    sums = {
        (layer, head): float(names["pairs"].stack().weights(layer, head).sum())
        for layer in range(3)
        for head in range(4)
    }
    assert min(sums, key=lambda head: sums[head]) == (1, 0)
    assert max(map(abs, sums.values())) == pytest.approx(8.35, abs=0.05)
    assert np.nanmax(np.abs(names["patches"].values)) == pytest.approx(0.4, abs=0.05)
    after = {label.text: label.probability for label in names["looking"].effect.candidates_after}
    assert max(after, key=lambda label: after[label]) == "cross"
    assert after["triangle"] == pytest.approx(0.004, abs=0.0005)
    assert names["weights"].classes[0].probability == pytest.approx(0.9997, abs=5e-5)


def neuron(names: Mapping[str, Any], printed: str) -> None:
    """Check the printed logit, and that the softmax of all logits gives the weights."""
    stack, query = names["stack"], names["query"]
    logits = stack.keys(layer=1, head=0) @ query / len(query) ** 0.5
    assert float(printed.rsplit(maxsplit=1)[-1]) == pytest.approx(float(logits[6]), abs=1e-3)
    shares = np.exp(logits - logits.max())
    assert_allclose(shares / shares.sum(), stack.weights(layer=1, head=0)[-1], atol=1e-5)


# Texts that the blocks of a page must print.
PRINTED = {
    "docs/compare.md": ["1 token is replaced by another", "layer 0: partners ["],
    "docs/does-it-matter.md": ["<TokenEffects of 14 tokens (mask): “street” (6) moves"],
    "docs/first-steps.md": ["street 0.92", "becomes “animal” instead of “street”"],
    "docs/from-inseq.md": ["street 1.0\nstreet 0.92"],
    "docs/heads.md": ["previous token 0.99 ± <0.01"],
}
# Functions that check the variables of a page, and the text that its blocks print.
RESULTS: dict[str, Callable[[Mapping[str, Any], str], None]] = {
    "README.md": readme,
    "docs/does-it-matter.md": does_it_matter,
    "docs/install.md": install,
    "docs/reading-attention.md": reading_attention,
    "docs/views/neuron.md": neuron,
    "docs/why-this-label.md": why_this_label,
}


def pages_to_run() -> Iterator[Any]:
    for page in PAGES:
        if page not in RUN_ELSEWHERE and any(True for _ in parsed(page).examples()):
            yield pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())


@pytest.mark.usefixtures("own_measures")
@pytest.mark.parametrize("page", pages_to_run())
def test_every_block_runs(
    page: str, reader: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    names = reader(page)
    printed = capsys.readouterr().out
    for line in PRINTED.get(page, []):
        assert line in printed
    if page in RESULTS:
        RESULTS[page](names, printed)
    for value in names.values():
        if isinstance(value, av.AttentionRecord):
            texts = [stack.query_tokens.text for stack in value.stacks.values()]
            assert not any("<unk>" in text for text in texts), "the demo model lacks a word"


def test_no_block_is_overlooked() -> None:
    for page in DOCUMENTS:
        text = (ROOT / page).read_text(encoding="utf-8")
        fences = re.findall(r"^[ >]*```(.*)$", text, re.M)
        assert len(fences) % 2 == 0, f"{page}: a block has no end"
        assert set(fences[::2]) <= LANGUAGES, page
        for reason in re.findall(r"<!-- *skip: (.+?) *-->", text):
            assert re.fullmatch(r'next "[^"]+"', reason), f"{page}: {reason}"
    for page, file in RUN_ELSEWHERE.items():
        own = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert Path(page).stem in own, page


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_command_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for line in re.findall(r"^\$ (.+)$", text.replace("\\\n", " "), re.M):
        check_command(line)
    for line in re.findall(r"`((?:attnviz|make) [^`\n]+)`", text):
        check_command(line)


def public(dotted: str) -> Any:
    """Return the object named `dotted`, or None if `dotted` is a single word not in `__all__`."""
    value: Any = av
    names = dotted.removeprefix("attnviz.").removeprefix("av.").split(".")
    if dotted == names[0] and names[0] not in av.__all__:
        return None
    for name in names:
        value = getattr(value, name)
    return value


def check_names(text: str) -> None:
    """Fail if code in a sentence has a name or an argument that does not exist in attnviz."""
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.+?^```", "", text, flags=re.S | re.M)):
        if " -m " in code:
            continue
        for dotted in re.findall(r"(?<![\w/.])(?:av|attnviz)(?:\.[A-Za-z_]\w*)+", code):
            public(dotted)
        with contextlib.suppress(SyntaxError):
            for call in ast.walk(ast.parse(code, mode="eval")):
                if isinstance(call, ast.Call):
                    check_arguments(call)


def check_arguments(call: ast.Call) -> None:
    """Fail if a call of a public function, with or without `av.`, has an unknown keyword."""
    function = public(ast.unparse(call.func)) if isinstance(call.func, ast.Name) else None
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func).startswith("av."):
        function = public(ast.unparse(call.func))
    if function is None:
        return
    parameters = inspect.signature(function).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        assert {word.arg for word in call.keywords} <= {*parameters, None}, ast.unparse(call)


@pytest.mark.parametrize("page", PAGES)
def test_names_in_sentences_exist(page: str) -> None:
    check_names((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_target_exists(document: str) -> None:
    path = ROOT / document
    text = re.sub(r"^```.+?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (one or other for one, other in links):
        if "://" not in link:
            file, _, part = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            if part:
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
                names = [re.sub(r"[^\w -]", "", heading.lower()) for heading in headings]
                assert part in [name.replace(" ", "-") for name in names], link


def test_the_page_of_the_analysis_names_every_function() -> None:
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    for name in av.analysis.__all__:
        if callable(getattr(av.analysis, name)) and name[0].islower() and name != "problems":
            assert name in text, name


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [2, 16, 256])
def test_uniform_attention_has_the_scores_in_the_table(n: int, *, causal: bool) -> None:
    """The expected scores are the formulas in a table of docs/analysis.md."""
    queries = torch.randn(1, 2, n, 4, generator=torch.Generator().manual_seed(0))
    harmonic = sum(1 / number for number in range(1, n + 1))
    scores = dict.fromkeys(["previous token", "next token", "self", "first token"], 1 / n)
    scores["entropy"] = math.log(n)
    if causal:
        scores = {
            "previous token": (harmonic - 1) / (n - 1),
            "self": harmonic / n,
            "first token": harmonic / n,
            "entropy": sum(math.log(number) for number in range(1, n + 1)) / n,
        }
    tokens = [f"t{index}" for index in range(n)]
    record = av.AttentionRecord.from_qk(queries, queries, tokens, causal=causal)
    for pattern, value in scores.items():
        (of_heads,) = av.analysis.uniform_scores(record, pattern)
        assert of_heads == pytest.approx([value, value])
