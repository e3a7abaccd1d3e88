"""Command line of attnviz.

Each ``show_*`` function has a command, which writes the view to a file. The options of a command
are the arguments of the function, the traits of the view, and the arguments of its method ``save``.
The names, defaults and help texts of the options come from signatures and docstrings. The path of
the file is printed to stdout. Progress and errors are printed to stderr.
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
  attnviz embedding-view ./my-gpt2 texts.txt --max-points 5000 -o points.html
  attnviz atlas-view ./my-gpt2 texts.txt --checkpoint heads.safetensors --resume -o atlas.html
  attnviz atlas-view statistics.safetensors -o atlas.html

exit codes: 0 success, 1 failure (the reason is on stderr), 2 wrong usage
"""

_FILE = "x.html, x.pdf, x.svg or x.png (default: a page named after the model and the view)"

_DEMO = "Write a page that shows one of the tiny trained models of attnviz."

# Help texts of the positional arguments.
_POSITIONAL = {
    "model": "hub id or folder of a model, or a saved record (statistics for atlas-view)",
    "inputs": "a text, @FILE for a text or image file, or @- for stdin; two for a sentence pair",
    "texts": "a file with one text per line",
    "a": "like MODEL; several models are separated by commas",
    "b": "the input of the model, like INPUTS, or another saved record",
    "c": "a second text for the same model",
}

# Stack and query position that a demo page shows for each demo model. At these queries the models
# show what they learned. "decoder": the last word predicts the street. "encoder-decoder": the first
# dash predicts the month. "vision": the CLS token predicts the shape. "vision-language": the colour
# word attends to the shape with this colour.
_QUERIES = {
    "decoder": ("self", -1),
    "encoder-decoder": ("cross", 5),
    "vision": ("vision", 0),
    "vision-language": ("self", -2),
}


def _commands() -> dict[str, Callable[..., View]]:
    """Map the name of each command, such as "head-view", to its function, `show_head_view`."""
    names = [name for name in attnviz.__all__ if name.startswith("show_")]
    return {name.removeprefix("show_").replace("_", "-"): getattr(attnviz, name) for name in names}


def _view_of(function: Callable[..., View]) -> type[View]:
    view: type[View] = getattr(attnviz, str(inspect.signature(function).return_annotation))
    return view


def _parser(functions: Mapping[str, Callable[..., View]]) -> argparse.ArgumentParser:
    """Create the parser for the name of the command. Its help lists all commands."""
    summaries = {"demo": _DEMO} | {name: _summary(function) for name, function in functions.items()}
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
    views = [name for name, show in functions.items() if "inputs" in _positional(show)]
    parser.add_argument(
        "--model", default="decoder", choices=[*_QUERIES], help="name of the demo model"
    )
    parser.add_argument("--view", default="head-view", choices=views, help="kind of view")
    _add_options(parser, _saving_options(_view_of(functions["head-view"])))
    return parser


def _view_parser(name: str, function: Callable[..., View]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"attnviz {name}",
        usage=" ".join(["%(prog)s", *map(str.upper, _positional(function)), "[options]"]),
        description=_escaped(_summary(function)),
        allow_abbrev=False,
    )
    for argument in _positional(function):
        count = "*" if argument == "inputs" else "?" if argument in {"b", "c", "texts"} else None
        parser.add_argument(
            argument, nargs=count, metavar=argument.upper(), help=_POSITIONAL[argument]
        )
    _add_options(parser, _view_options(function) | _saving_options(_view_of(function)))
    return parser


class _Option:
    """Command line option for an argument of a function or a trait of a view.

    `kind` is the annotation of the argument as a string. `words` is the help text.
    """

    def __init__(self, annotation: Any, default: Any = None, words: str = "") -> None:
        text = getattr(annotation, "__forward_arg__", annotation)
        # Annotations are strings in modules with postponed evaluation, and otherwise types.
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
        """Convert the value of the option from a string.

        If the option accepts only strings, return `text`. If it accepts a sequence of strings,
        split `text` at commas. Otherwise return the Python literal, such as a number or a list, or
        `text` if it is not a literal.
        """
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
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]


def _view_options(function: Callable[..., View]) -> dict[str, _Option]:
    """Return options for the arguments of a `show_*` function and for the traits of its view."""
    from traitlets import Bool, Unicode

    from attnviz.extraction.options import RecordOptions

    view = _view_of(function)
    options, sources = _keywords(function), [function, *view.__mro__]
    if "options" in inspect.signature(function).parameters:
        # The function passes its ``**options`` to `attnviz.extract`, so add the arguments of
        # `extract`.
        more = {"target": "str | None", **RecordOptions.__annotations__}
        options |= {name: (annotation, None) for name, annotation in more.items()}
        sources.insert(0, attnviz.extract)
    for name in view.state_names():
        trait = view.class_traits()[name]
        kind = "bool" if isinstance(trait, Bool) else "str" if isinstance(trait, Unicode) else ""
        if name not in options or options[name][0] is inspect.Parameter.empty:
            options[name] = (kind, None)
    return _described(options, sources)


def _saving_options(view: type[View]) -> dict[str, _Option]:
    """Return options for the arguments of a view's method `save`.

    The arguments `theme` and `controls` are also traits of the view.
    """
    from attnviz.pages.figure import FigureArguments

    methods: Any = view
    options = _keywords(methods.save)
    options |= {name: (kind, None) for name, kind in FigureArguments.__annotations__.items()}
    return _described(options, [methods.to_html, methods.to_svg, methods.save])


def _described(
    options: Mapping[str, tuple[Any, Any]], sources: Sequence[Any]
) -> dict[str, _Option]:
    """Add the description of each argument from the first of `sources` that has one.

    `options` maps the name of an argument to its annotation and its default.
    """
    words: dict[str, str] = {}
    for source in sources:
        for name, _, description in documented_names(source):
            # Ignore descriptions that only refer to another class.
            if description and not description.startswith("See "):
                words.setdefault(name, description)
    return {
        name: _Option(annotation, default, words.get(name, ""))
        for name, (annotation, default) in options.items()
    }


def _keywords(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Map each keyword-only argument of `function` to its annotation and its default."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: (parameter.annotation, parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _summary(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _escaped(words: str) -> str:
    return words.replace("%", "%%")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default that in ``sys.argv``, and return the exit code.

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
        # Use `parse_intermixed_args`, because positional arguments may follow options.
        options = _view_parser(command, function).parse_intermixed_args(arguments[1:])
    from traitlets import TraitError

    try:
        path = _write(function, vars(options))
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


def _write(function: Callable[..., View], options: Mapping[str, Any]) -> Path:
    """Create the view of a command, write it to a file, and return the path of the file.

    `options` are the parsed arguments of the command.
    """
    arguments = dict(options)
    output, is_demo = arguments.pop("output"), arguments.pop("view", None) is not None
    of_view = {*_view_options(function), *_positional(function)}
    saving = {name: arguments.pop(name) for name in [*arguments] if name not in of_view}
    _check_file(output, saving, arguments.get("theme", "auto"))
    view = _demo(arguments, _view_of(function)) if is_demo else _show(function, arguments)
    path: Path = cast("Any", view).save(output or f"{view.file_name}.html", **saving)
    return path


def _check_file(output: Path | None, saving: Mapping[str, Any], theme: str) -> None:
    """Raise an error if the options of the output file are invalid.

    This check runs before the model, so that an error does not come after a long computation.
    """
    from attnviz.pages.figure import FigureArguments, parse_figure_options
    from attnviz.pages.limits import check_file_kind, check_options

    kind = "html" if output is None else check_file_kind(output)
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"-o {output}: the folder {str(output.parent)!r} does not exist")
    check_options(saving.get("precision", "auto"), saving.get("max_mb"))
    figure = {name: saving[name] for name in FigureArguments.__annotations__ if name in saving}
    parse_figure_options(cast("FigureArguments", figure), theme)
    if kind != "html":
        from attnviz.pages.image import check_browser

        check_browser()
    elif figure:
        raise ValueError(
            f"{next(iter(figure))}= applies only to pictures: pass -o x.pdf, x.svg or x.png"
        )


def _show(function: Callable[..., View], arguments: dict[str, Any]) -> View:
    """Read the inputs of a command, and call its `show_*` function without displaying the view."""
    from attnviz.views.show import nothing_displayed

    names = _positional(function)
    values = {name: value for name in names if (value := arguments.pop(name)) not in (None, [])}
    if "texts" in values:
        values["texts"] = _read_lines(Path(values["texts"]))
    if "inputs" in values:
        inputs = [_read(text) for text in values["inputs"]]
        values["inputs"] = inputs[0] if len(inputs) == 1 else tuple(inputs)
    for name in {"b", "c"} & values.keys():
        is_record = values[name].endswith(".safetensors")
        values[name] = (_load if is_record else _read)(values[name])
    first = names[0]
    several = values[first].split(",") if first == "a" else [values[first]]
    load = _load_statistics if function is attnviz.show_atlas_view else _load
    models = [load(text) for text in several]
    values[first] = models[0] if len(models) == 1 else models
    with nothing_displayed():
        return function(**values, **arguments)


def _load(text: str) -> Any:
    """Load a saved record. If `text` is the hub id or folder of a model, return it unchanged."""
    path = Path(text).expanduser()
    if path.suffix == ".safetensors" or (path.is_dir() and not (path / "config.json").is_file()):
        print(f"attnviz: reading {text}", file=sys.stderr)
        return attnviz.load(path)
    print(f"attnviz: loading and running {text}", file=sys.stderr)
    return text


def _load_statistics(text: str) -> Any:
    """Load saved head statistics. Otherwise return the result of `_load`."""
    if text.endswith(".safetensors"):
        return attnviz.HeadStatistics.load(Path(text).expanduser())
    return _load(text)


def _read(text: str) -> Any:
    """Return `text`. If it starts with @, read the text or image in the file that it names.

    ``@-`` reads from stdin.
    """
    if not text.startswith("@"):
        return text
    file = text.removeprefix("@")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    try:
        # Remove the last line feed, which most editors add and which is not part of the text.
        return data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError:
        return _read_image(file, data)


def _read_image(file: str, data: bytes) -> Any:
    """Decode an image and rotate it as its EXIF data require. `file` is for error messages."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImportError(f"@{file} needs Pillow: pip install 'attnviz[vision]'") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise ValueError(
            f"@{file} is neither text in UTF-8 nor an image that Pillow can read"
        ) from None


def _read_lines(path: Path) -> list[str]:
    """Return the texts of a file with one text per line, without blank lines.

    Lines are separated only by line ends. `str.splitlines` would also split a text at other
    characters, such as U+2028.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{path} contains no text. Write one text per line.")
    return texts


def _demo(arguments: dict[str, Any], view: type[View]) -> View:
    from attnviz import demos
    from attnviz.views.show import record_of

    name = arguments.pop("model")
    print(f"attnviz: running the demo model {name!r}", file=sys.stderr)
    model, reader = demos.load(name)
    example = demos.example(name)
    by = {"processor" if name.startswith("vision") else "tokenizer": reader}
    record = record_of(model, example.pop("inputs"), **by, **example)
    make = cast("Callable[..., View]", view)
    return make(record, **arguments, **_strongest_position(record, name))


def _strongest_position(record: AttentionRecord, model: str) -> dict[str, Any]:
    """Return the settings of a view that show what a demo model learned.

    They are the query in `_QUERIES`, and the head with the largest weight of this query.
    """
    name, query = _QUERIES[model]
    stack = record.stack(name)
    token = query % len(stack.query_tokens)
    row = slice(token, token + 1)
    # Ignore layer 0: its inputs do not depend on other tokens, so its heads cannot show what the
    # model learned about them.
    largest = {
        (layer, head): stack.weights(layer=layer, head=head, rows=row).max()
        for layer in stack.layers
        for head in range(stack.num_heads(layer))
        if layer > 0
    }
    layer, head = max(largest, key=largest.__getitem__)
    return {"stack": name, "layer": layer, "heads": [head], "token": token}


def _reason(error: BaseException) -> str:
    """Return the message of an error, or the name of its class if it has no message.

    str() of a KeyError would put the message in quotes.
    """
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
