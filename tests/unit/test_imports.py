"""What loads when, and who may use whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnviz

PACKAGE = Path(attnviz.__file__).parent

# From the bottom up: each floor uses only those below it (and its own rooms).
FLOORS = [
    {
        "arrays_file",
        "columns",
        "images",
        "paths",
        "points",
        "predictions",
        "softmax",
        "spans",
        "windows",
    },
    {"arrays", "tokens", "masks", "storage", "static_files", "host"},
    {"weights", "display", "words", "projected", "record_folder", "saved_tokens"},
    {"kept", "reservations", "saved_masks"},
    {"merged", "sampled", "zeros", "given_masks", "given_tokens"},
    {"sampled_rows", "stack"},
    {"given", "given_vectors"},
    {"elsewhere"},
    {"record"},
    {"saved", "pooled", "titles"},
    {"corpus"},
    {"analysis"},
    {"projection_cache", "projecting_folder"},
    {"projecting", "projecting_process"},
    {"channel", "spool"},
    {"spool_folders"},
    {"snapshot", "extraction"},
    {"views"},
    {"demos", "embedding_arguments", "recording"},
    {"show"},
    {"show_embedding"},
    {"cli", "__init__"},
    {"__main__"},
]
# `load` and `save` know the saved form only when they are called.
LATE = {("record", "saved"), ("record", "storage")}


def run(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_import_attnviz_loads_neither_torch_nor_transformers() -> None:
    loaded = run("import sys, attnviz; print(*sys.modules)").split()
    heavy = {"torch", "transformers", "numpy", "pandas", "anywidget", "IPython", "playwright"}
    heavy |= {"openTSNE", "platformdirs", "sklearn", "umap"}
    assert heavy & set(loaded) == set()


def test_every_public_name_is_there_and_listed() -> None:
    public = set(attnviz.__all__)
    assert public <= set(dir(attnviz))
    assert public >= {"extract", "show_head_view", "AttentionRecord", "HeadView", "load"}
    assert all(getattr(attnviz, name).__doc__ for name in public)
    with pytest.raises(AttributeError, match="module 'attnviz' has no attribute 'extrakt'"):
        _ = attnviz.extrakt


WITHOUT_TRANSFORMERS = """
import sys, importlib.abc

class Uninstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"transformers", "tokenizers", "huggingface_hub"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Uninstalled())
import attnviz as av

record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
path = record.save(sys.argv[1])
view = av.HeadView(av.load(path), token=1)
assert view.to_html().startswith("<!doctype html>")
av.show_head_view([[[[1.0, 0.0], [0.4, 0.6]]]], tokens=["Ġa", "b"])
assert "transformers" not in sys.modules
try:
    av.show_head_view("some/model", "the cat")
except ImportError as error:
    print(error)
"""


def test_records_from_elsewhere_are_drawn_without_transformers(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRANSFORMERS, str(tmp_path / "x.safetensors")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "transformers" in answer.stdout


def imports_of(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in it, for types alone excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_room_uses_only_rooms_below_it(path: Path) -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    room = room_of(path)
    for name in imports_of(path):
        head, _, rest = name.partition(".")
        used = rest.split(".")[0] if rest else "__init__"
        if head != "attnviz" or used == room or (room, used) in LATE:
            continue
        if room in {"cli", "__main__"} and used == "__init__":
            continue
        assert floor[used] < floor[room], f"{room} uses {used}"


@pytest.mark.parametrize(
    ("room", "outside"),
    [
        ("images", {"numpy"}),
        ("predictions", set()),
        ("tokens", set()),
        ("softmax", {"torch"}),
        ("windows", {"torch"}),
        ("masks", {"torch"}),
        ("weights", {"numpy", "torch"}),
        ("words", set()),
        ("kept", {"numpy", "torch"}),
        ("merged", {"numpy"}),
        ("arrays", {"numpy", "torch"}),
        ("projected", set()),
        ("zeros", {"torch"}),
        ("given_tokens", set()),
        ("given_masks", {"torch"}),
        ("given_vectors", {"torch"}),
        ("given", {"torch"}),
        ("elsewhere", set()),
        ("sampled", {"numpy", "torch"}),
        ("sampled_rows", {"numpy", "torch"}),
        ("stack", {"numpy"}),
        ("display", set()),
        ("record", {"numpy", "pandas"}),
        ("points", {"numpy"}),
        ("columns", {"numpy"}),
        ("pooled", set()),
        ("reservations", set()),
        ("titles", set()),
        ("corpus", {"torch"}),
        ("saved", {"numpy", "torch"}),
        ("saved_masks", {"numpy", "torch"}),
        ("saved_tokens", set()),
        ("storage", {"torch", "safetensors"}),
        ("arrays_file", {"torch"}),
        ("record_folder", {"torch"}),
        ("spool", {"torch"}),
        ("spool_folders", set()),
        ("paths", set()),
        ("spans", set()),
        ("channel", {"numpy", "torch"}),
        ("analysis", {"numpy", "openTSNE", "sklearn", "torch", "tqdm", "umap"}),
        ("projecting", {"numpy"}),
        ("projecting_folder", {"numpy"}),
        ("projecting_process", set()),
        ("projection_cache", {"numpy", "platformdirs", "torch"}),
    ],
)
def test_what_rooms_use_from_outside(room: str, outside: set[str]) -> None:
    for path in FILES:
        if room_of(path) != room:
            continue
        names = {name.split(".")[0] for name in imports_of(path)}
        assert names - set(sys.stdlib_module_names) - {"attnviz", "__future__"} <= outside, path


def test_only_extraction_and_demos_use_transformers() -> None:
    users = {
        room_of(path)
        for path in FILES
        if any(name.split(".")[0] == "transformers" for name in imports_of(path))
    }
    assert users <= {"extraction", "demos"}
