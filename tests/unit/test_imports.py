"""Test what ``import attnviz`` loads, and what each package of attnviz may import."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import attnviz
import attnviz.analysis

PACKAGE = Path(attnviz.__file__).parent

# Packages of attnviz that each package imports, as in the table of CONTRIBUTING.md. "attnviz" is
# the public interface: the names of `attnviz.__all__`.
IMPORTS = {
    "utils": set(),
    "record": {"utils"},
    "analysis": {"utils", "record"},
    "extraction": {"utils", "record"},
    "comparison": {"utils", "record", "extraction"},
    "interventions": {"utils", "record", "extraction"},
    "corpus": {"utils", "record", "analysis", "extraction"},
    "server": {"utils", "record", "analysis"},
    "pages": {"utils", "record", "analysis", "server"},
    "views": {
        *("utils", "record", "analysis", "extraction", "comparison", "interventions"),
        *("server", "pages"),
    },
    "embedding": {"utils", "record", "corpus", "server", "pages", "views"},
    "atlas": {"utils", "corpus", "server", "pages", "views"},
    "integrations": {"utils", "views", "attnviz"},
    "demos": set(),
}
USE_TRANSFORMERS = {"extraction", "demos", "integrations"}
# Packages outside attnviz that a package may import. Packages without an entry are not checked.
OUTSIDE = {
    # utils shows progress bars and sets the number of threads of torch.
    "utils": {"IPython", "huggingface_hub", "numpy", "torch", "tqdm"},
    "record": {"msgspec", "numpy", "pandas", "safetensors", "torch"},
    "analysis": {"lazy_loader", "numpy", "scipy", "torch"},
    "corpus": {"lazy_loader", "msgspec", "numpy", "pandas", "pyarrow", "torch"},
    "server": {"numpy", "torch", "cachetools", "msgspec"},
    "pages": {"IPython", "PIL", "nbformat", "numpy", "playwright", "torch"},
}


def run(code: str, *arguments: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


LIGHT_IMPORTS = """
import sys
import attnviz as av
print(*sys.modules)
assert av.analysis.previous_token([[1.0, 0.0], [0.5, 0.5]]) == 0.5
print(*sys.modules)
"""


def test_import_attnviz_loads_neither_torch_nor_transformers() -> None:
    package, with_analysis = (set(line.split()) for line in run(LIGHT_IMPORTS).splitlines())
    heavy = {"torch", "transformers", "openTSNE", "sklearn", "numba", "umap"}
    assert not heavy & with_analysis
    assert not {"numpy", "pandas", "anywidget", "IPython", "playwright"} & package


def test_every_public_name_exists_and_is_listed() -> None:
    public = set(attnviz.__all__)
    assert public >= {"extract", "show_head_view", "AttentionRecord", "HeadView", "load"}
    assert {name for name in dir(attnviz) if not name.startswith("_")} == public
    assert all(getattr(attnviz, name).__doc__ for name in public)
    assert set(attnviz.analysis.__all__) <= set(dir(attnviz.analysis))
    message = "module 'attnviz' has no attribute 'head_view'; did you mean 'show_head_view'?"
    with pytest.raises(AttributeError, match=re.escape(message)):
        _ = attnviz.head_view  # type: ignore[attr-defined]


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


@pytest.mark.slow
def test_records_of_other_sources_are_drawn_without_transformers(tmp_path: Path) -> None:
    assert "transformers" in run(WITHOUT_TRANSFORMERS, str(tmp_path / "x.safetensors"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[str]:
    """Yield the full names of the modules and objects that a file imports, also in functions.

    Imports under `TYPE_CHECKING` are left out.
    """
    waiting: list[ast.AST] = [tree_of(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            # The imported name may be a module, so yield the full name, too.
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


def test_only_packages_and_the_command_line_are_at_the_top() -> None:
    loose = {path.name for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py", "cli.py"}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(IMPORTS)


def test_imports_go_one_way_between_packages() -> None:
    always = {"attnviz", "__future__", *sys.stdlib_module_names}
    faults = []
    used_by: dict[str, set[str]] = {package: set() for package in IMPORTS}
    for path in FILES:
        package, name = package_of(path), path.relative_to(PACKAGE).as_posix()
        for imported in imports_of(path):
            top, _, used = imported.partition(".")
            if top == "transformers" and package not in USE_TRANSFORMERS:
                faults.append(f"{name} imports {imported}")
            if package in OUTSIDE and top not in OUTSIDE[package] | always:
                faults.append(f"{name} imports {imported}")
            if package in IMPORTS and top == "attnviz":
                part = used.split(".")[0]
                used_by[package].add(part if part in IMPORTS else "attnviz")
    assert faults == []
    assert {package: used - {package} for package, used in used_by.items()} == IMPORTS
    # If packages import each other in a cycle, `prepare` raises an error that names them.
    TopologicalSorter(IMPORTS).prepare()


def test_imports_have_no_cycles() -> None:
    modules = {
        ".".join(("attnviz", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in FILES
    }
    uses = {name: set(imports_of(path)) & set(modules) for name, path in modules.items()}
    # If modules import each other in a cycle, `prepare` raises an error that names them.
    TopologicalSorter(uses).prepare()
