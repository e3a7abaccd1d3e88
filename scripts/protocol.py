"""Write the TypeScript that follows from Python classes: requests, replies, and traits of views.

`python scripts/protocol.py` writes `js/src/client/protocol.ts` and `js/src/client/traits.ts`. With
`--check`, the script only checks that these files are up to date.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, is_typeddict

import msgspec
import traitlets

from attnviz.analysis.measures import SINK_WEIGHT
from attnviz.atlas.description import AtlasEdges, AtlasTable, AtlasTexts
from attnviz.atlas.server import ATLAS_REQUESTS
from attnviz.atlas.view import AtlasView
from attnviz.embedding.server.description import CorpusPoints
from attnviz.embedding.server.plots import PlotOptions
from attnviz.embedding.server.server import CORPUS_REQUESTS
from attnviz.embedding.view import EmbeddingView
from attnviz.server.pending_replies import PendingHeader
from attnviz.server.protocol import Requests
from attnviz.server.server import RECORD_REQUESTS
from attnviz.server.vectors import RowHeader
from attnviz.utils.docstrings import documented_names
from attnviz.views.base import View
from attnviz.views.compare import CompareView
from attnviz.views.dashboard import Dashboard
from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head import MAX_DEFAULT_HEADS, HeadView
from attnviz.views.head_order import HeadOrder, HeadRoles
from attnviz.views.image_maps import ImageMaps
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from attnviz.views.position import HeadsView, PositionedView
from attnviz.views.record_view import RecordView
from attnviz.views.token_windows import DEFAULT_WINDOW
from attnviz.views.trait_types import Controls, Heads, ResolvedIndex
from attnviz.views.what_if import WhatIf

_CLIENT = Path(__file__).parents[1] / "js" / "src" / "client"
FILE = _CLIENT / "protocol.ts"
TRAITS_FILE = _CLIENT / "traits.ts"

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
 * The matrices of a long text are too large to be sent. A read returns a part of a matrix, called
 * a block, or reduces it: to cells, each of which covers several queries and keys, or to the
 * strongest keys of each query.
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
        elif issubclass(kind, msgspec.Struct):
            # The struct is an option of a union, which its tag identifies.
            config = kind.__struct_config__
            members[str(config.tag_field)] = (f"Literal[{config.tag!r}]", False, "")
            for info in msgspec.structs.fields(kind):
                annotation = kind.__annotations__[info.name]
                members[info.name] = (annotation, not info.required, kind.__module__)
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
            if optional and not is_typeddict(kind):
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
        if isinstance(meant, UnionType):
            options = " | ".join(map(self.name_of, get_args(meant)))
            self.written.setdefault(name, f"export type {name} = {options};\n")
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

    For a class that is not in a package of the server, atlas, embedding or views, return no texts.
    """
    if not {"server", "atlas", "embedding", "views"} & set(kind.__module__.split(".")):
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


_TRAITS_HEADER = """/**
 * Traits of the views: their defaults, their controls, and their form in the address of a page.
 *
 * `make protocol` writes this file from the traits of the classes in `attnviz/views`,
 * `attnviz/embedding/view.py` and `attnviz/atlas/view.py`. Change these classes instead of this
 * file.
 */

import type { Range } from "./protocol";

/**
 * Values that a trait can have: one of several strings, a number, a text, a list, or a value of one
 * of several kinds. "index" is an integer of at least 0.
 */
export type Kind =
  | readonly string[]
  | "boolean"
  | "index"
  | "integer"
  | "number"
  | "text"
  | { readonly list: Kind; readonly size?: number }
  | { readonly either: readonly Kind[] };

/** Declaration of a trait. */
export interface Trait<T> {
  /** Default value. */
  readonly value: T;
  /** Kind of the values. Undefined if the value has a structure that only a kernel can check. */
  readonly kind?: Kind;
  /** Smallest number. */
  readonly min?: number;
  /** Whether null is a value. */
  readonly nullable?: true;
  /**
   * Whether the address of a page has the value: always, or never. By default, it has the value if
   * the reader has changed it.
   */
  readonly address?: "always" | "never";
  /** Label of the control. Undefined if the trait has no simple control. */
  readonly label?: string;
  /** Labels of the strings of a menu. A string without a label is shown itself. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Group of controls in which the view shows the control. */
  readonly group?: string;
  /** Traits of which at least one must differ from its default, or the control is not shown. */
  readonly when?: readonly string[];
}

/** Values of the traits of a view, by name. */
export type StateOf<T> = { -readonly [K in keyof T]: T[K] extends Trait<infer V> ? V : never };
"""

_VIEWS = (
    *(HeadView, ModelView, NeuronView, MatrixView, CompareView, Dashboard),
    *(EmbeddingView, AtlasView),
)
# Classes whose traits the state of all views has in TypeScript. A view that lacks one in Python has
# its default. Traits that cause changes of others come first: a linked view receives changes in
# this order.
_COMMON = (
    *(HeadsView, GeneratedToken, PositionedView, View, RecordView),
    *(HeadRoles, HeadOrder, TokenScores, WhatIf, ImageMaps),
)
# Traits that TypeScript reads directly from the widget.
_OF_WIDGETS = {"_code", "_esm", "_anywidget_id", "_description", "_picture", "_record_number"}


def traits() -> str:
    """Return the text of traits.ts."""
    writer = Writer()
    constants: dict[str, list[str]] = {}
    shared: dict[str, str] = {}

    def members_of(view: type[View], source: type[View]) -> list[str]:
        """Declare the traits of `source`, as `view` has them, and return the lines of a table."""
        words, members = _trait_words(view), []
        for name in vars(source):
            if name not in view.class_traits(sync=True) or name in _OF_WIDGETS:
                continue
            kind, declaration = _trait(writer, view.class_traits()[name])
            # Views share the declaration of a trait. Another declaration needs another name.
            own = shared.setdefault(name, f"{kind} {declaration}") != f"{kind} {declaration}"
            constant = f"{name}_of_{_snake(view)}" if own else name
            start = f"const {constant}: Trait<{kind}> = "
            text = f"{start}{_literal(declaration, len(start))};"
            constants.setdefault(constant, [*_comment(words.get(name, ""), ""), text, ""])
            members.append(f"  {name}: {constant}," if own else f"  {name},")
        return members

    tables = {"record": [line for source in _COMMON for line in members_of(source, source)]}
    for view in _VIEWS:
        sources = [base for base in reversed(view.__mro__) if issubclass(base, View)]
        own = [source for source in sources if source not in _COMMON]
        lines = [line for source in own for line in members_of(view, source)]
        tables[_snake(view)] = list(dict.fromkeys(lines))
    rules = [
        "/** Length of the longest text that a view with windows shows as a whole by default. */",
        f"export const MAX_WHOLE_TEXT = {HeadView.max_whole_text};",
        "",
        "/** Maximum number of heads of a layer for which all heads are chosen by default. */",
        f"export const MAX_DEFAULT_HEADS = {MAX_DEFAULT_HEADS};",
        "",
        "/** Number of tokens of a default window. */",
        f"export const DEFAULT_WINDOW = {DEFAULT_WINDOW};",
        "",
        "/** Mean weight over queries above which a patch is an attention sink. */",
        f"export const SINK_WEIGHT = {SINK_WEIGHT};",
        "",
    ]
    lines = [line for entry in constants.values() for line in entry]
    for name, members in tables.items():
        lines += ["/** Traits that all views have. */"] if name == "record" else []
        lines += [f"export const {name.upper()}_TRAITS = {{", *members, "};", ""]
    return "\n".join([_TRAITS_HEADER, *rules, *writer.written.values(), *lines])


def _snake(view: type[View]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", view.__name__).lower()


def _trait_words(view: type[View]) -> dict[str, str]:
    """Return the descriptions of the traits of a view by name, except references to others."""
    described = [entry for base in reversed(view.__mro__) for entry in documented_names(base)]
    return {name: words for name, _, words in described if not words.startswith("See ")}


def _trait(writer: Writer, trait: Any) -> tuple[str, dict[str, Any]]:
    """Return the type of a trait in TypeScript, and its declaration without absent fields."""
    written, kind = _kind(writer, trait)
    if trait.allow_none and written != "unknown":
        written += " | null"
    tags = ("address", "label", "labels", "group", "when")
    declaration = {name: trait.metadata.get(name) for name in tags}
    # The reader cannot change a trait that only Python sets.
    if kind is not None and not trait.read_only and not trait.name.startswith("_"):
        limit = trait.metadata.get("min", getattr(trait, "min", None))
        smallest = (
            None if limit in (None, -math.inf) or (kind == "index" and limit == 0) else int(limit)
        )
        nullable = trait.allow_none or None
        declaration = {"kind": kind, "min": smallest, "nullable": nullable, **declaration}
    given = {name: value for name, value in declaration.items() if value is not None}
    default = trait.default()
    return written, {"value": int(default) if isinstance(default, float) else default, **given}


def _kind(writer: Writer, trait: Any) -> tuple[str, Any]:  # noqa: PLR0911 - one for each kind
    """Return the type of a trait's values in TypeScript, and their `Kind`, or None without one."""
    if hasattr(trait, "wire"):
        return _written(writer, trait.wire), None
    if isinstance(trait, traitlets.Enum | Controls):
        words = list(getattr(trait, "values", None) or Controls.FORMS)
        return _union(words), words
    if isinstance(trait, traitlets.Int):
        is_index = isinstance(trait, ResolvedIndex) or (trait.min is not None and trait.min >= 0)
        return "number", "index" if is_index else "integer"
    if isinstance(trait, traitlets.Union):
        kinds = [_kind(writer, option) for option in trait.trait_types]
        return " | ".join(kind for kind, _ in kinds), {"either": [kind for _, kind in kinds]}
    if isinstance(trait, traitlets.List):
        written, kind = _kind(writer, trait._trait)
        if written == "unknown":
            return written, None
        if trait._minlen == trait._maxlen == 2 or trait.metadata.get("size") == 2:
            return "Range", {"list": kind, "size": 2}
        kind = "index" if isinstance(trait, Heads) else kind
        return _many(written), kind and {"list": kind}
    if isinstance(trait, traitlets.Dict) and trait._value_trait is not None:
        return f"Record<string, {_kind(writer, trait._value_trait)[0]}>", None
    plain = {
        traitlets.Bool: ("boolean", "boolean"),
        traitlets.Float: ("number", "number"),
        traitlets.Unicode: ("string", "text"),
    }
    return next(
        (kind for base, kind in plain.items() if isinstance(trait, base)), ("unknown", None)
    )


def _written(writer: Writer, kind: Any) -> str:
    """Return a type of Python in TypeScript."""
    options = [_written(writer, option) for option in get_args(kind)]
    if isinstance(kind, UnionType):
        return " | ".join(options)
    if get_origin(kind) is list:
        return _many(options[0])
    if get_origin(kind) is dict:
        return f"Record<string, {options[1]}>"
    return "null" if kind is type(None) else _PLAIN.get(kind.__name__) or writer.name_of(kind)


def _literal(value: Any, start: int, indent: str = "") -> str:
    """Return a value in TypeScript. `start` is the number of characters before it in its line."""
    if not isinstance(value, dict | list | tuple) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + "  "
    if isinstance(value, dict):
        keys = [f"{name if name.isidentifier() else json.dumps(name)}: " for name in value]
        ends, entries = "{}", list(zip(keys, value.values(), strict=True))
    else:
        ends, entries = "[]", [("", entry) for entry in value]
    space = " " if ends == "{}" else ""
    whole = space + ", ".join(key + _literal(entry, -_WIDTH) for key, entry in entries) + space
    if start + len(whole) + 3 <= _WIDTH:
        return ends[0] + whole + ends[1]
    lines = [inner + key + _literal(entry, len(inner + key), inner) for key, entry in entries]
    return "\n".join([ends[0], *(f"{line}," for line in lines), indent + ends[1]])


def main(arguments: list[str]) -> int:
    """Write or check the files. Return 1 if a check fails, otherwise 0."""
    outdated = False
    for file, text in ((FILE, protocol()), (TRAITS_FILE, traits())):
        if arguments != ["--check"]:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            print(f"{file} is out of date: run `make protocol`", file=sys.stderr)
            outdated = True
    return int(outdated)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
