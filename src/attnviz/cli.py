"""The command line: one command for each ``show_*`` function, which writes its view as a file.

The options of a command are the arguments of its function, the traits of its view, and the
arguments of ``save``: their names, defaults and help come from the signatures and docstrings.
Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attnviz
from attnviz.utils.docstrings import documented_names
from attnviz.utils.host import offer_file

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord
    from attnviz.views.base import View

__all__ = ["main"]

_EPILOG = """examples:
  attnviz demo
  attnviz head-view ./my-bert "The cat sat." -o head_view.html
  attnviz head-view ./my-llama "The cat" --generate 40 --layer -1 --heads 0,3 --token cat
  attnviz model-view ./my-bart "Hello" --target "Bonjour" -o x.svg --width 84mm
  attnviz head-view ./my-bert @report.txt --truncation -o x.html
  attnviz matrix-view ./my-vit @cat.png -o x.html
  attnviz head-view record.safetensors -o x.svg
  attnviz compare-view ./my-bert "He was tired." "She was tired." -o x.html
  attnviz compare-view ./base,./tuned "The cat sat." --form matrix
  attnviz embedding-view ./my-gpt2 texts.txt --points 5000 -o points.html
  attnviz atlas-view ./my-gpt2 texts.txt --checkpoint heads.safetensors --resume -o atlas.html
  attnviz atlas-view statistics.safetensors -o atlas.html

exit codes: 0 written, 1 it could not be done (the reason is on stderr), 2 wrong usage
"""

_FILE = "x.html, x.pdf, x.svg or x.png (default: a page under the model's and the view's name)"

_DEMO = "Show a tiny trained model that comes with attnviz, as a page."

# Help of the positional arguments on the command line.
_POSITIONAL = {
    "model": "hub id or folder of a model, or a saved record (statistics for atlas-view)",
    "inputs": "a text, or @FILE for the text or the image of a file, @- for stdin; two for a pair",
    "texts": "a file with one text a line",
    "a": "as MODEL; with a comma between two models or more",
    "b": "what the model reads, as INPUTS; or another saved record",
    "c": "the other text for one model",
}

# Queries at which the demo models show what they learned: the last word predicts the street, the
# first dash the month, CLS the shape, the colour the shape of that colour.
_QUERIES = {
    "decoder": ("self", -1),
    "encoder-decoder": ("cross", 5),
    "vision": ("vision", 0),
    "vision-language": ("self", -2),
}


def _commands() -> dict[str, Callable[..., View]]:
    """The functions that show a view, by their commands."""
    names = [name for name in attnviz.__all__ if name.startswith("show_")]
    return {name.removeprefix("show_").replace("_", "-"): getattr(attnviz, name) for name in names}


def _view_of(function: Callable[..., View]) -> type[View]:
    view: type[View] = getattr(attnviz, str(inspect.signature(function).return_annotation))
    return view


def _parser(functions: Mapping[str, Callable[..., View]]) -> argparse.ArgumentParser:
    """Make the parser that reads the name of the command and lists all of them."""
    summaries = {"demo": _DEMO} | {name: _summary(each) for name, each in functions.items()}
    lines = [f"  {name:16}{summary}" for name, summary in summaries.items()]
    parser = argparse.ArgumentParser(
        prog="attnviz",
        usage="attnviz COMMAND ...    (attnviz COMMAND --help lists its options)",
        description="\n".join(["See how a transformer attends.", "", "commands:", *lines]),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attnviz {attnviz.__version__}")
    parser.add_argument("command", nargs="?", choices=[*summaries], help=argparse.SUPPRESS)
    return parser


def _demo_parser(functions: Mapping[str, Callable[..., View]]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnviz demo", description=_DEMO, allow_abbrev=False)
    views = [name for name, each in functions.items() if "inputs" in _positional(each)]
    parser.add_argument("--model", default="decoder", choices=[*_QUERIES], help="which of them")
    parser.add_argument("--view", default="head-view", choices=views, help="which view")
    _add_options(parser, _saving(_view_of(functions["head-view"])))
    return parser


def _view_parser(name: str, function: Callable[..., View]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"attnviz {name}",
        usage=" ".join(["%(prog)s", *map(str.upper, _positional(function)), "[options]"]),
        description=_escaped(_summary(function)),
        allow_abbrev=False,
    )
    for each in _positional(function):
        count = "*" if each == "inputs" else "?" if each in {"b", "c", "texts"} else None
        parser.add_argument(each, nargs=count, metavar=each.upper(), help=_POSITIONAL[each])
    _add_options(parser, _showing(function) | _saving(_view_of(function)))
    return parser


class _Option:
    """An option: what its argument is, its default, and its help."""

    def __init__(self, annotation: Any, default: Any = None, words: str = "") -> None:
        text = getattr(annotation, "__forward_arg__", annotation)
        # Postponed annotations are text.
        self.kind = text if isinstance(text, str) else getattr(text, "__name__", str(text))
        self.default, self.words = default, words

    def add(self, command: argparse._ActionsContainer, name: str) -> None:
        default = "" if self.default in (None, False, inspect.Parameter.empty) else self.default
        words = f"{self.words} (default: {default})" if default != "" else self.words
        common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _escaped(words)}
        option = "--" + name.replace("_", "-")
        if self.kind == "bool":
            command.add_argument(option, action=argparse.BooleanOptionalAction, **common)
        elif self.kind == "bool | int":
            command.add_argument(option, nargs="?", const=True, type=int, metavar="N", **common)
        else:
            command.add_argument(option, type=self.read, metavar="VALUE", **common)

    def read(self, text: str) -> Any:
        """Read a value: a text where no other kind is taken, else what Python reads, or a text."""
        if self.kind in ("str", "str | None"):
            return text
        if self.kind.startswith("Sequence[str]"):
            return text.split(",")
        try:
            return ast.literal_eval(text)
        except (MemoryError, RecursionError, SyntaxError, ValueError):
            return text


def _add_options(command: argparse.ArgumentParser, options: Mapping[str, _Option]) -> None:
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help=_FILE)
    for name, option in options.items():
        option.add(command, name)


def _positional(function: Callable[..., View]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def _showing(function: Callable[..., View]) -> dict[str, _Option]:
    """Options of a `show_*` function, and the traits of its view."""
    view = _view_of(function)
    from traitlets import Bool, Unicode

    from attnviz.extraction.options import RecordOptions

    described: dict[str, str] = {}
    for source in (function, *view.__mro__):
        for name, _, words in documented_names(source):
            if words:
                described.setdefault(name, words)
    found = _keywords(function)
    if "options" in inspect.signature(function).parameters:
        # The rest goes to `attnviz.extract`.
        more = {"target": "str | None", **RecordOptions.__annotations__}
        described |= {each: words for each, _, words in documented_names(attnviz.extract)}
        found |= {name: (annotation, None) for name, annotation in more.items()}
    for name in view.state_names():
        trait = view.class_traits()[name]
        kind = "bool" if isinstance(trait, Bool) else "str" if isinstance(trait, Unicode) else ""
        if name not in found or found[name][0] is inspect.Parameter.empty:
            found[name] = (kind, None)
    return {name: _Option(*each, described.get(name, "")) for name, each in found.items()}


def _saving(view: type[View]) -> dict[str, _Option]:
    """Options of a view's `save`; theme and controls are traits of the view, too."""
    from attnviz.pages.figure import FigureArguments

    described: dict[str, str] = {}
    for method in ("to_html", "to_svg", "save"):
        for name, _, words in documented_names(getattr(view, method)):
            described.setdefault(name, words)
    found = _keywords(cast("Any", view).save)
    found |= {name: (kind, None) for name, kind in FigureArguments.__annotations__.items()}
    return {name: _Option(*each, described.get(name, "")) for name, each in found.items()}


def _keywords(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The annotations and defaults of what is given by name alone."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: (each.annotation, each.default)
        for each in parameters
        if each.kind is each.KEYWORD_ONLY
    }


def _summary(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _escaped(words: str) -> str:
    return words.replace("%", "%%")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Examples
    --------
    >>> main(["demo", "-o", "head_view.html"])    # doctest: +SKIP
    0
    """
    arguments = sys.argv[1:] if arguments is None else [*arguments]
    functions = _commands()
    parser = _parser(functions)
    command = parser.parse_args(arguments[:1]).command
    if command is None:
        parser.print_help()
        return 0
    if command == "demo":
        options = _demo_parser(functions).parse_args(arguments[1:])
        function = functions[options.view]
    else:
        function = functions[command]
        # The text may follow options.
        options = _view_parser(command, function).parse_intermixed_args(arguments[1:])
    from traitlets import TraitError

    try:
        path = _written(function, vars(options))
    except KeyboardInterrupt:
        print("attnviz: interrupted", file=sys.stderr)
        return 130
    except (
        *(ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
        TraitError,
    ) as error:
        print(f"attnviz: {_reason(error)}", file=sys.stderr)
        return 1
    offer_file(path)
    return 0


def _written(function: Callable[..., View], options: Mapping[str, Any]) -> Path:
    """Write what a function shows, and give the place of the file."""
    given = dict(options)
    output, is_demo = given.pop("output"), given.pop("view", None) is not None
    of_view = {*_showing(function), *_positional(function)}
    saving = {name: given.pop(name) for name in [*given] if name not in of_view}
    _check_file(output, saving, given.get("theme", "auto"))
    view = _demo(given, _view_of(function)) if is_demo else _shown(function, given)
    path: Path = cast("Any", view).save(output or f"{view.file_name}.html", **saving)
    return path


def _check_file(output: Path | None, saving: Mapping[str, Any], theme: str) -> None:
    """Refuse what cannot be written before a model runs."""
    from attnviz.pages.figure import FigureArguments, figure_options
    from attnviz.pages.limits import check_file_kind, check_options

    kind = "html" if output is None else check_file_kind(output)
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"-o {output}: the folder {str(output.parent)!r} does not exist")
    check_options(saving.get("precision", "auto"), saving.get("max_mb"))
    figure = {name: saving[name] for name in FigureArguments.__annotations__ if name in saving}
    figure_options(cast("FigureArguments", figure), theme)
    if kind != "html":
        from attnviz.pages.image import check_browser

        check_browser()
    elif figure:
        raise ValueError(f"{next(iter(figure))}= is of pictures: write -o x.pdf, x.svg or x.png")


def _shown(function: Callable[..., View], given: dict[str, Any]) -> View:
    """Call a `show_*` function, which displays nothing here."""
    from attnviz.views.show import nothing_displayed

    names = _positional(function)
    values = {name: value for name in names if (value := given.pop(name)) not in (None, [])}
    if "texts" in values:
        values["texts"] = _lines(Path(values["texts"]))
    if "inputs" in values:
        read = [_read(each) for each in values["inputs"]]
        values["inputs"] = read[0] if len(read) == 1 else tuple(read)
    for name in {"b", "c"} & values.keys():
        is_record = values[name].endswith(".safetensors")
        values[name] = (_loaded if is_record else _read)(values[name])
    first = names[0]
    several = values[first].split(",") if first == "a" else [values[first]]
    load = _statistics if function is attnviz.show_atlas_view else _loaded
    models = [load(each) for each in several]
    values[first] = models[0] if len(models) == 1 else models
    with nothing_displayed():
        return function(**values, **given)


def _loaded(text: str) -> Any:
    """A saved record, or the hub id or folder of a model as it is."""
    path = Path(text).expanduser()
    if path.suffix == ".safetensors" or (path.is_dir() and not (path / "config.json").is_file()):
        print(f"attnviz: reading {text}", file=sys.stderr)
        return attnviz.load(path)
    print(f"attnviz: loading and running {text}", file=sys.stderr)
    return text


def _statistics(text: str) -> Any:
    """Saved statistics, or the hub id or folder of a model as it is."""
    if text.endswith(".safetensors"):
        return attnviz.HeadStatistics.load(Path(text).expanduser())
    return _loaded(text)


def _read(text: str) -> Any:
    """A text; or with @ before it the text or the image of a file."""
    if not text.startswith("@"):
        return text
    file = text.removeprefix("@")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    try:
        # Without the line's end that editors put behind a text.
        return data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError:
        return _image(file, data)


def _image(file: str, data: bytes) -> Any:
    """An image, upright."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImportError(f"@{file} needs Pillow: pip install 'attnviz[vision]'") from None
    try:
        with Image.open(io.BytesIO(data)) as opened:
            return ImageOps.exif_transpose(opened)
    except UnidentifiedImageError:
        raise ValueError(
            f"@{file} is neither text in UTF-8 nor an image that Pillow can read"
        ) from None


def _lines(path: Path) -> list[str]:
    """Return the texts of a file, one per line.

    A line ends at a line feed. `str.splitlines` would also cut at characters that a text may hold,
    such as U+2028.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{path} contains no text; give one per line")
    return texts


def _demo(given: dict[str, Any], view: type[View]) -> View:
    from attnviz import demos
    from attnviz.views.show import record_of

    name = given.pop("model")
    print(f"attnviz: running the demo model {name!r}", file=sys.stderr)
    model, reader = demos.load(name)
    example = demos.example(name)
    by = {"processor" if name.startswith("vision") else "tokenizer": reader}
    record = record_of(model, example.pop("inputs"), **by, **example)
    make = cast("Callable[..., View]", view)
    return make(record, **given, **_strongest_position(record, name))


def _strongest_position(record: AttentionRecord, model: str) -> dict[str, Any]:
    """Where a demo model shows what it learned: a query, and the head with the largest weight."""
    name, query = _QUERIES[model]
    stack = record.stack(name)
    token = query % len(stack.query_tokens)
    row = slice(token, token + 1)
    # Not in the first layer, whose input is single tokens and their positions.
    largest = {
        (layer, head): stack.weights(layer=layer, head=head, rows=row).max()
        for layer in stack.layers
        for head in range(stack.num_heads(layer))
        if layer > 0
    }
    layer, head = max(largest, key=lambda each: largest[each])
    return {"stack": name, "layer": layer, "heads": [head], "token": token}


def _reason(error: BaseException) -> str:
    """What went wrong, without the quotes that Python puts around a KeyError's text."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
