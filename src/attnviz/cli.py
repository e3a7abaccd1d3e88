"""Command line of attnviz.

Each ``show_*`` function of attnviz has a command, such as ``head-view`` for `show_head_view`. The
command creates the view and saves it to a file. The command ``demo`` saves a view of a demo model.
The options of a command are the keyword arguments of the function, the traits of the view, and the
arguments of its method ``save``. The names, defaults and help texts of the options come from
signatures and docstrings. The path of the file is printed to stdout. Progress and errors are
printed to stderr.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attnviz
from attnviz.utils.docstrings import documented_names
from attnviz.utils.host import offer_file

if TYPE_CHECKING:
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
  attnviz atlas-view ./my-gpt2 texts.txt -o atlas.html
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

# For each demo model, the stack and the position of the query that the command `demo` shows. A
# stack is the attention of one kind in all layers. A negative position counts from the end. At
# these queries, the models show what they learned:
# - decoder: at the last word of the input, the model predicts "street".
# - hybrid: at the last word of the input, the model predicts "garden".
# - encoder-decoder: at the first dash of the date in the output, the model predicts the month.
# - vision: at the class token (CLS), the model predicts the shape.
# - vision-language: the word "red" attends to the red shape.
_QUERIES = {
    "decoder": ("self", -1),
    "hybrid": ("self", -1),
    "encoder-decoder": ("cross", 5),
    "vision": ("vision", 0),
    "vision-language": ("self", -2),
}
# Suffix of files with a saved record or saved statistics.
_RECORD = ".safetensors"


def _commands() -> dict[str, Callable[..., View]]:
    """Return the function of each command except "demo", by the name of the command."""
    names = [name for name in attnviz.__all__ if name.startswith("show_")]
    return {name.removeprefix("show_").replace("_", "-"): getattr(attnviz, name) for name in names}


def _view_of(function: Callable[..., View]) -> Any:
    """Return the class of the view that a `show_*` function returns."""
    return getattr(attnviz, str(inspect.signature(function).return_annotation))


def _parser(functions: Mapping[str, Callable[..., View]]) -> argparse.ArgumentParser:
    """Create the parser for the name of the command, which is the first argument.

    `functions` is the result of `_commands`. The help of the parser lists all commands.
    """
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


def _command_parser(command: str, function: Callable[..., View]) -> argparse.ArgumentParser:
    """Create the parser for the arguments of a command.

    `function` is the `show_*` function that the command calls.
    """
    positional = [] if command == "demo" else _positional(function)
    parser = argparse.ArgumentParser(
        prog=f"attnviz {command}",
        usage=" ".join(["%(prog)s", *map(str.upper, positional), "[options]"]),
        description=_DEMO if command == "demo" else _summary(function),
        allow_abbrev=False,
    )
    if command == "demo":
        parser.add_argument("--model", default="decoder", choices=[*_QUERIES], help="demo model")
    for name in positional:
        count = "*" if name == "inputs" else "?" if name in {"b", "c", "texts"} else None
        parser.add_argument(name, nargs=count, metavar=name.upper(), help=_POSITIONAL[name])
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=_FILE)
    words = _descriptions(function)
    for name, (annotation, default) in _options(function).items():
        _add_option(parser, name, annotation, default, words.get(name, ""))
    return parser


def _summary(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _positional(function: Callable[..., View]) -> list[str]:
    # `getfullargspec` does not read the signature of a decorated function.
    return inspect.getfullargspec(inspect.unwrap(function)).args


def _passes_options(function: Callable[..., View]) -> bool:
    """Whether a `show_*` function has ``**options``, which it passes to `attnviz.extract`."""
    return "options" in inspect.signature(function).parameters


def _options(function: Callable[..., View]) -> dict[str, tuple[Any, Any]]:
    """Return the annotation and the default of each option of a command.

    The options are the keyword arguments of the `show_*` function `function`, those of the view's
    method `save`, the arguments for figures, the traits of the view, and, if `function` has
    ``**options``, the options of `attnviz.extract`. Only the first two kinds have defaults. For the
    others, the default is None.
    """
    from traitlets import Bool, Unicode

    from attnviz.extraction.options import RecordOptions
    from attnviz.pages.figure import FigureArguments

    view = _view_of(function)
    options = {
        name: (parameter.annotation, parameter.default)
        for source in (function, view.save)
        for name, parameter in inspect.signature(source).parameters.items()
        # Skip parameters without annotation. They are traits, which are added below.
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.annotation is not parameter.empty
    }
    annotations: dict[str, Any] = dict(FigureArguments.__annotations__)
    if _passes_options(function):
        annotations |= {"target": "str | None", **RecordOptions.__annotations__}
    for name in view.state_names():
        trait = view.class_traits()[name]
        annotations[name] = (
            "bool" if isinstance(trait, Bool) else "str" if isinstance(trait, Unicode) else ""
        )
    for name, annotation in annotations.items():
        options.setdefault(name, (annotation, None))
    return options


def _descriptions(function: Callable[..., View]) -> dict[str, str]:
    """Find the descriptions of the options of a command in docstrings. Return them by name.

    The result also has the names of other arguments and traits in these docstrings.
    """
    view = _view_of(function)
    # An option whose name is that of a trait and of an argument for figures sets the trait.
    sources = [view.to_html, view.save, function, *view.__mro__, view.to_svg]
    if _passes_options(function):
        sources.append(attnviz.extract)
    words: dict[str, str] = {}
    for source in sources:
        for name, _, description in documented_names(source):
            # Ignore descriptions that only refer to another docstring, and use the other docstring.
            if description and not description.startswith("See "):
                words.setdefault(name, description)
    return words


def _add_option(
    parser: argparse.ArgumentParser, name: str, annotation: Any, default: Any, words: str
) -> None:
    if default not in (None, False, inspect.Parameter.empty):
        words = f"{words} (default: {default})"
    flag = "--" + name.replace("_", "-")
    # The annotations of a TypedDict are `ForwardRef` objects. Other annotations are strings.
    annotation = getattr(annotation, "__forward_arg__", annotation)
    common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": words.replace("%", "%%")}
    if annotation == "bool":
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
    elif annotation == "bool | int":
        parser.add_argument(flag, nargs="?", const=True, type=int, metavar="N", **common)
    else:
        read = partial(_read_value, annotation)
        parser.add_argument(flag, type=read, metavar="VALUE", **common)


def _read_value(annotation: str, text: str) -> Any:
    """Convert the value of an option from a string.

    `annotation` is the type that the option accepts. If it accepts only strings, return `text`. If
    it accepts a sequence of strings, split `text` at commas. Otherwise, read `text` as a Python
    literal, such as a number or a list, or return `text` if it is not a literal.
    """
    if annotation in ("str", "str | None"):
        return text
    if annotation.startswith("Sequence[str]"):
        return text.split(",")
    try:
        return ast.literal_eval(text)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code.

    `arguments` are the name of the command and its arguments, by default those in ``sys.argv``.

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
    function = functions["head-view" if command == "demo" else command]
    # Use `parse_intermixed_args`, so that positional arguments may follow options.
    options = vars(_command_parser(command, function).parse_intermixed_args(arguments[1:]))
    from traitlets import TraitError

    try:
        path = _write(command, function, options)
    except KeyboardInterrupt:
        print("attnviz: interrupted", file=sys.stderr)
        return 130
    except (
        *(ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
        TraitError,
    ) as error:
        # Do not use `str(error)` for a KeyError, because it puts the message in quotes.
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"attnviz: {str(reason) or type(error).__name__}", file=sys.stderr)
        return 1
    offer_file(path)
    return 0


def _write(command: str, function: Callable[..., View], options: dict[str, Any]) -> Path:
    """Create the view of a command, write it to a file, and return the path of the file.

    `options` are the parsed arguments of the command by name. This function removes some of them.
    """
    from attnviz.pages.figure import FigureArguments
    from attnviz.views.show import nothing_displayed

    view_class = _view_of(function)
    names = {*inspect.signature(view_class.save).parameters, *FigureArguments.__annotations__}
    names -= {*view_class.state_names()}
    saving = {name: options.pop(name) for name in names & options.keys()}
    output = options.pop("output")
    _check_file(output, saving)
    if command == "demo":
        options = _demo(options.pop("model")) | options
    else:
        for argument in _positional(function):
            text = options.pop(argument)
            if text not in (None, []):
                options[argument] = _read_argument(function, argument, text)
    with nothing_displayed():
        view: Any = function(**options)
    path: Path = view.save(output or f"{view.file_name}.html", **saving)
    return path


def _check_file(output: Path | None, saving: Mapping[str, Any]) -> None:
    """Raise an error if the path of the output file or an option for it is invalid.

    Also raise an error if a picture needs a browser and none is installed. `saving` has the
    arguments of the view's method `save`. This check runs before the model, so that an error does
    not come after a long computation.
    """
    from attnviz.pages.figure import FigureArguments, parse_figure_options
    from attnviz.pages.limits import check_file_kind, check_options

    kind = "html" if output is None else check_file_kind(output)
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"-o {output}: the folder {str(output.parent)!r} does not exist")
    check_options(saving.get("precision", "auto"), saving.get("max_mb"))
    figure = {name: saving[name] for name in FigureArguments.__annotations__ if name in saving}
    parse_figure_options(figure)
    if kind != "html":
        from attnviz.pages.image import check_browser

        check_browser()
    elif figure:
        raise ValueError(
            f"{next(iter(figure))}= applies only to pictures: pass -o x.pdf, x.svg or x.png"
        )


def _read_argument(function: Callable[..., View], name: str, text: Any) -> Any:
    """Return the value of a positional argument of a command for the function of the command.

    `text` is the argument on the command line, or a list of strings for "inputs".
    """
    if name == "model" and function is attnviz.show_atlas_view and text.endswith(_RECORD):
        return attnviz.HeadStatistics.load(Path(text).expanduser())
    if name == "model":
        return _load(text)
    if name == "a":
        models = [_load(model) for model in text.split(",")]
        return models if len(models) > 1 else models[0]
    if name == "texts":
        # Do not use `str.splitlines`, which would also split a text at characters that editors do
        # not show as the end of a line, such as U+2028.
        lines = Path(text).expanduser().read_text(encoding="utf-8-sig").split("\n")
        return [line for line in lines if line.strip()]
    if name == "inputs":
        inputs = [_read(part) for part in text]
        return inputs[0] if len(inputs) == 1 else tuple(inputs)
    return _load(text) if text.endswith(_RECORD) else _read(text)


def _load(text: str) -> Any:
    """Load the saved record at the path `text`.

    If `text` is not the path of a saved record but the hub id or folder of a model, return it
    unchanged.
    """
    path = Path(text).expanduser()
    if path.suffix == _RECORD or (path.is_dir() and not (path / "config.json").is_file()):
        print(f"attnviz: reading {text}", file=sys.stderr)
        return attnviz.load(path)
    print(f"attnviz: loading and running {text}", file=sys.stderr)
    return text


def _read(text: str) -> Any:
    """Return `text`, or the content of a file if `text` is "@" and the path of the file.

    The file is a text in UTF-8, or an image. "@-" reads the text or image from stdin.
    """
    if not text.startswith("@"):
        return text
    file = text.removeprefix("@")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    try:
        # Remove the line feed at the end of the file, which most editors add.
        return data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError:
        pass
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImportError(f"{text} needs Pillow: pip install 'attnviz[vision]'") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            # Rotate the image as its EXIF data require.
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise ValueError(
            f"{text} is neither text in UTF-8 nor an image that Pillow can read"
        ) from None


def _demo(name: str) -> dict[str, Any]:
    """Return arguments of `show_head_view` with which the view shows what a demo model learned.

    The view shows the model's record of its example, with the query in `_QUERIES` and the head that
    has the largest weight of this query.
    """
    print(f"attnviz: running the demo model {name!r}", file=sys.stderr)
    model, reader = attnviz.demos.load(name)
    by = {"processor" if name.startswith("vision") else "tokenizer": reader}
    record = attnviz.extract(model, **attnviz.demos.example(name), **by)
    stack_name, query = _QUERIES[name]
    stack = record.stack(stack_name)
    # Ignore layer 0. There, the vector of a token does not yet depend on other tokens, so the heads
    # cannot show what the model learned about the context of a token.
    largest = {
        (layer, head): stack.weights(layer=layer, head=head)[query].max()
        for layer in stack.layers
        for head in range(stack.num_heads(layer))
        if layer > 0
    }
    layer, head = max(largest, key=largest.__getitem__)
    token = query % len(stack.query_tokens)
    return {"model": record, "stack": stack_name, "layer": layer, "heads": [head], "token": token}
