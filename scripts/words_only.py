"""Check that a change touches only words: `python scripts/words_only.py BASE`.

The script compares the working tree with the git revision BASE. Python files must have the same
syntax tree, apart from docstrings. TypeScript and CSS files must have the same minified output, and
the same lines apart from comments. Other files are only listed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ESBUILD = ROOT / "js" / "node_modules" / ".bin" / "esbuild"


def code_of_python(source: str) -> str:
    """Return the syntax tree of `source` without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                statement
                for statement in body
                if not (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                )
            ]
    return ast.dump(tree)


def minified(source: str, suffix: str) -> str:
    """Return TypeScript or CSS without comments and white space.

    Identifiers are not shortened, because esbuild's choice of short names depends on comments.
    """
    return subprocess.run(
        [
            ESBUILD,
            "--minify-whitespace",
            "--minify-syntax",
            f"--loader={suffix.removeprefix('.')}",
        ],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def code(source: str, suffix: str) -> str:
    if suffix == ".py":
        return code_of_python(source)
    # esbuild removes types. Comparing all lines except comments also detects changes of types.
    without_comments = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    lines = (line.strip() for line in without_comments.splitlines())
    return minified(source, suffix) + "".join(line for line in lines if not line.startswith("//"))


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def main(base: str) -> int:
    changed = []
    other = []
    names = git("diff", "--name-status", "--no-renames", base).splitlines()
    for status, name in (line.split("\t") for line in names):
        suffix = Path(name).suffix
        if suffix not in {".py", ".ts", ".tsx", ".css"}:
            other.append(name)
        elif status != "M" or code(git("show", f"{base}:{name}"), suffix) != code(
            (ROOT / name).read_text(), suffix
        ):
            changed.append(name)
    print(f"{len(names)} files differ from {base}, the code of {len(changed)} of them")
    for name in changed:
        print(f"  code differs: {name}")
    for name in other:
        print(f"  not compared: {name}")
    return 1 if changed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
