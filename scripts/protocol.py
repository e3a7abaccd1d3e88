"""Write the TypeScript types of requests and replies, which follow from Python classes.

`python scripts/protocol.py` writes `js/src/client/protocol.ts`. With `--check`, the script only
checks that this file is up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, is_typeddict

from attnviz.atlas.description import AtlasEdges, AtlasTable, AtlasTexts
from attnviz.atlas.server import ATLAS_REQUESTS
from attnviz.embedding.server.description import CorpusPoints
from attnviz.embedding.server.plots import PlotOptions
from attnviz.embedding.server.server import CORPUS_REQUESTS
from attnviz.server.pending_replies import PendingHeader
from attnviz.server.protocol import Requests
from attnviz.server.server import RECORD_REQUESTS
from attnviz.server.vectors import RowHeader

FILE = Path(__file__).parents[1] / "js" / "src" / "client" / "protocol.ts"

_HEADER = """/**
 * Types of the requests of views and of the headers of replies.
 *
 * `make protocol` writes this file from the classes in `attnviz/server/server.py`,
 * `attnviz/embedding/server/server.py` and `attnviz/atlas/server.py`. Change these classes instead
 * of this file.
 *
 * A live view sends requests to the kernel. An exported page is an HTML file that answers requests
 * from its data. A reply has a header, which is a JSON object, and optionally a buffer, which is an
 * array of bytes. Numbers in a buffer are little-endian, and an array of a shape such as (heads,
 * keys) is in row-major order.
 *
 * A record is the attention of a model on one example. A stack is the attention of one kind, such
 * as "self" or "cross", in all layers. A layer is identified by its number in the model, a head by
 * its index in the layer, and a query or key by its position among the queries or keys. All of them
 * are counted from 0. The attention of a head is a matrix of weights: a row is a query and a column
 * is a key. Instead of weights, a stack can have signed numbers, which may be negative, such as
 * differences of weights. A measure gives a score to each head. For example, the measure "previous
 * token" is the mean weight on the previous token.
 *
 * The matrices of a long text are too large to be sent. A block is a part of a matrix. A map is a
 * matrix that is pooled to few cells, each of which covers several queries and keys. A tile is a
 * part of a matrix that is pooled to 256 by 256 cells at one of several zoom levels.
 *
 * A corpus has the records of several texts. A point is a query or a key of one token of a corpus.
 * An atlas has statistics of all heads over a corpus. An edge is a query and a key with their
 * weight.
 */

/** A half-open range [start, stop). */
export type Range = [number, number];
"""
_PLAIN = {
    "int": "number",
    "float": "number",
    "str": "string",
    "bool": "boolean",
    "None": "null",
    "Range": "Range",
}
_WIDTH = 100
_SECTION = re.compile(r"\n(Attributes|Raises|Examples|Notes)\n-+\n")


class Writer:
    """Collector of TypeScript declarations. Each class comes after the classes that it uses."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}

    def name_of(self, kind: type) -> str:
        """Return the name of the interface of a class. Declare the interface at the first call."""
        name = kind.__name__
        if name not in self.written:
            # Reserve the name and position, because the fields may refer to the class itself.
            self.written[name] = ""
            text = self._interface(kind)
            del self.written[name]
            self.written[name] = text
        return name

    def _interface(self, kind: type) -> str:
        summary, comments = _documented(kind)
        base = _base(kind)
        inherited = base.__annotations__ if base else {}
        extends = f" extends {self.name_of(base)}" if base else ""
        members = {}
        if is_dataclass(kind):
            for field in fields(kind):
                module = next(
                    base.__module__
                    for base in kind.__mro__
                    if field.name in inspect.get_annotations(base)
                )
                # In a request, a field with a default may be omitted. A reply has all fields.
                optional = field.default is not MISSING and hasattr(kind, "answer")
                members[field.name] = (str(field.type), optional, module)
        else:
            for name, annotation in kind.__annotations__.items():
                optional = annotation.__forward_arg__.startswith("NotRequired") or (
                    name in kind.__optional_keys__  # type: ignore[attr-defined]
                )
                module = annotation.__forward_module__
                members[name] = (annotation.__forward_arg__, optional, module)
        if not members:
            lines = [
                *_comment(summary, ""),
                f"export type {kind.__name__} = Record<string, never>;",
            ]
            return "\n".join(lines) + "\n"
        lines = [*_comment(summary, ""), f"export interface {kind.__name__}{extends} {{"]
        for name, (annotation, optional, module) in members.items():
            if name in inherited:
                continue
            # A request omits an optional field instead of passing null.
            written = self._type(ast.parse(annotation, mode="eval").body, module)
            if is_dataclass(kind) and optional:
                written = written.removesuffix(" | null")
            lines += _comment(comments.get(name, ""), "  ")
            lines.append(f"  {name}{'?' if optional else ''}: {written};")
        return "\n".join([*lines, "}"]) + "\n"

    def _type(self, node: ast.expr, module: str) -> str:  # noqa: PLR0911 - a line for each form
        match node:
            case ast.Constant(value=None):
                return "null"
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return f"{self._type(left, module)} | {self._type(right, module)}"
            case ast.Subscript(value=ast.Name(id="NotRequired"), slice=inner):
                return self._type(inner, module)
            case ast.Subscript(value=ast.Name(id="Mapping")):
                return "object"
            case ast.Subscript(value=ast.Name(id="list"), slice=inner):
                return _many(self._type(inner, module))
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, last])) if (
                isinstance(last, ast.Constant) and last.value is Ellipsis
            ):
                return _many(self._type(inner, module))
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=inner)):
                return f"[{', '.join(self._type(option, module) for option in inner)}]"
            case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
                options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return _union([ast.literal_eval(option) for option in options])
            case ast.Name(id=name):
                return _PLAIN.get(name) or self._named(name, module)
        raise TypeError(f"{module}: {ast.unparse(node)} has no type in TypeScript")

    def _named(self, name: str, module: str) -> str:
        meant: Any = getattr(sys.modules[module], name)
        if get_origin(meant) is Literal:
            self.written.setdefault(name, f"export type {name} = {_union(get_args(meant))};\n")
            return name
        return self.name_of(meant)


def _base(kind: type) -> type | None:
    """Return the class of which an interface inherits fields.

    A request does not inherit, because it can omit fields that a class of options always has.
    """
    definition = ast.parse(inspect.getsource(kind)).body[0]
    if hasattr(kind, "answer") or not isinstance(definition, ast.ClassDef):
        return None
    # A TypedDict does not know its bases, so read them from the source.
    names = [base.id for base in definition.bases if isinstance(base, ast.Name)]
    bases = [getattr(sys.modules[kind.__module__], name) for name in names]
    return next((base for base in bases if is_dataclass(base) or is_typeddict(base)), None)


def _union(options: Any) -> str:
    return " | ".join(
        f'"{option}"' if isinstance(option, str) else str(option) for option in options
    )


def _many(kind: str) -> str:
    return f"({kind})[]" if "|" in re.sub(r"\(.*\)", "", kind) else f"{kind}[]"


def _documented(kind: type) -> tuple[str, dict[str, str]]:
    """Return the docstring of a class without its sections, and the descriptions of attributes.

    For a class that is not in a package of the server, the atlas or the embedding, return no texts.
    """
    if not {"server", "atlas", "embedding"} & set(kind.__module__.split(".")):
        return "", {}
    text = inspect.getdoc(kind) or ""
    pieces = _SECTION.split(text)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    comments: dict[str, str] = {}
    names: list[str] = []
    for line in sections.get("Attributes", "").splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(":")[0].split(",")]
        elif line:
            # If several attributes have a common description, only the first gets a comment.
            comments[names[0]] = f"{comments.get(names[0], '')} {line.strip()}".strip()
    return pieces[0].strip(), comments


def _comment(text: str, indent: str) -> list[str]:
    if not text:
        return []
    text = text.replace("``", "`").replace("None", "null")
    if "\n" not in text and len(text) + len(indent) + 7 <= _WIDTH:
        return [f"{indent}/** {text} */"]
    lines = []
    for paragraph in text.split("\n\n"):
        line = ""
        for word in paragraph.split():
            if line and len(f"{indent} * {line} {word}") > _WIDTH:
                lines.append(line)
                line = ""
            line = f"{line} {word}".strip()
        lines += [line, ""]
    body = [f"{indent} * {line}".rstrip() for line in lines[:-1]]
    return [f"{indent}/**", *body, f"{indent} */"]


def _table(writer: Writer, subject: str, about: str, requests: Requests[Any]) -> str:
    """Return the types of the arguments and of the replies of the requests about a subject."""
    arguments = [
        f"/** Arguments of the requests about {about}, by the name of the request. */",
        f"export interface {subject}Requests {{",
    ]
    replies = [
        f"/** Headers of the replies to the requests about {about}. */",
        f"export interface {subject}Replies {{",
    ]
    for request, kind in requests.classes.items():
        arguments.append(f"  {request}: {writer.name_of(kind)};")
        headers = " | ".join(writer.name_of(header) for header in requests.headers[request])
        replies.append(f"  {request}: {headers};")
    return "\n".join([*arguments, "}\n", *replies, "}"]) + "\n"


def protocol() -> str:
    """Return the text of protocol.ts."""
    writer = Writer()
    for kind in (PlotOptions, CorpusPoints, RowHeader, PendingHeader):
        writer.name_of(kind)
    # Some replies contain deflated JSON of these types, to which no class of requests refers.
    for deflated in (AtlasTable, AtlasTexts, AtlasEdges):
        writer.name_of(deflated)
    tables = [
        _table(writer, "Record", "a record", RECORD_REQUESTS),
        _table(writer, "Corpus", "a corpus", CORPUS_REQUESTS),
        _table(writer, "Atlas", "an atlas", ATLAS_REQUESTS),
    ]
    live = (*RECORD_REQUESTS.live, *CORPUS_REQUESTS.live, *ATLAS_REQUESTS.live)
    tables.append(
        "/** Requests that only a kernel answers. An exported page answers all others. */\n"
        f"export type LiveRequest = {_union(dict.fromkeys(live))};\n"
    )
    return "\n".join([_HEADER, *writer.written.values(), *tables])


def main(arguments: list[str]) -> int:
    """Write or check protocol.ts. Return 1 if the check fails, otherwise 0."""
    text = protocol()
    if arguments == ["--check"]:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{FILE} is out of date: run `make protocol`", file=sys.stderr)
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
