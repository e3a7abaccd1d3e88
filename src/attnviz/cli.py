"""The command line: the same views, written as files.

``attnviz demo``, ``attnviz head-view`` and a command for each other view; results go to stdout,
progress and errors to stderr. What can be known to be wrong is said before a model runs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import attnviz
from attnviz.utils.arguments import MOST_NUMBERS, shown
from attnviz.utils.host import offer_file

if TYPE_CHECKING:
    from attnviz.atlas.view import AtlasView
    from attnviz.corpus.statistics import HeadStatistics
    from attnviz.embedding.view import EmbeddingView
    from attnviz.pages.figure import FigureArguments
    from attnviz.pages.limits import PagePrecision
    from attnviz.record.record import AttentionRecord
    from attnviz.views.record_view import RecordView

__all__ = ["main"]

_EPILOG = """examples:
  attnviz demo
  attnviz head-view --model ./my-bert --text "The cat sat." -o head_view.html
  attnviz model-view --model ./my-bart --text "Hello" --target "Bonjour" --layer 2 -o x.svg
  attnviz head-view --model ./my-llama --text "The cat" --generate 40 -o x.html
  attnviz neuron-view --model ./my-gpt2 --text "The cat sat." --layer -1 --heads 1 --token cat
  attnviz matrix-view --model ./my-vit --image cat.png -o x.html
  attnviz head-view --model ./my-bert --text-file report.txt --truncate --heads 0,3 -o x.html
  attnviz head-view record.safetensors -o x.svg
  attnviz model-view --model ./my-llama --text "The cat sat." --layers 0,8-11 --dtype bfloat16
  attnviz head-view --model ./my-gpt2 --text "The cat sat." --max-mb 2 -o small.html
  attnviz head-view --model ./my-bert --text "The cat sat." -o x.pdf --width 84mm --font-size 8
  attnviz compare-view --model ./my-bert --text "He was tired." --text "She was tired." -o x.html
  attnviz compare-view --model ./base --model ./tuned --text "The cat sat." --form matrix
  attnviz embedding-view --model ./my-gpt2 --texts texts.txt --points 5000 -o points.html
  attnviz atlas --model ./my-gpt2 --texts corpus.txt -o atlas.html
  attnviz atlas --model ./my-gpt2 --texts corpus.txt --part 3/16 --save part-3.safetensors
  attnviz atlas merge part-*.safetensors -o statistics.safetensors
  attnviz atlas statistics.safetensors -o atlas.html

exit codes: 0 written, 1 it could not be done (the reason is on stderr), 2 wrong usage
"""

# Commands, the classes that they show, and what they say of themselves.
_VIEWS = {
    "head-view": ("HeadView", "lines from tokens to tokens"),
    "model-view": ("ModelView", "all heads of all layers as a grid"),
    "neuron-view": ("NeuronView", "what a weight is made of: queries and keys"),
    "matrix-view": ("MatrixView", "a head's weights as a heat-map"),
    "dashboard": ("Dashboard", "model view, head view and matrix view, linked"),
}

# Queries at which the demo models show what they learned: the last word predicts the street, the
# first dash the month, CLS the shape, the colour the shape of that colour.
_QUERIES = {
    "decoder": ("self", -1),
    "encoder-decoder": ("cross", 5),
    "vision": ("vision", 0),
    "vision-language": ("self", -2),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnviz",
        description="See how a transformer attends.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attnviz {attnviz.__version__}")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="a tiny trained model that comes with attnviz, as a page",
        description="Write a view of a tiny trained model that comes with attnviz; no network is "
        "needed.",
        epilog="example: attnviz demo -o head_view.html",
    )
    demo.add_argument(
        "--model",
        default="decoder",
        choices=list(_QUERIES),
        help="which of the demo models (default: %(default)s)",
    )
    demo.add_argument(
        "--view", default="head-view", choices=_VIEWS, help="which view (default: %(default)s)"
    )
    _add_output(demo)
    for name, (_, what) in _VIEWS.items():
        _add_view(commands, name, what)
    _add_compare_view(commands)
    _add_embedding_view(commands)
    _add_atlas(commands)
    return parser


def _add_view(commands: Any, name: str, what: str) -> None:
    view = commands.add_parser(
        name,
        help=what,
        description=f"Run a model on a text or an image, or take a saved record, and write its "
        f"{name.replace('-', ' ')}: {what}.",
        epilog=f'example: attnviz {name} --model ./my-bert --text "The cat sat." -o x.html',
    )
    view.set_defaults(parser=view)
    view.add_argument(
        "saved",
        nargs="?",
        metavar="RECORD",
        help="a saved record in place of a model: a .safetensors file, or the folder of --spool",
    )
    view.add_argument("--record", metavar="RECORD", help="the same")
    view.add_argument("--model", metavar="ID", help="hub id or folder")
    texts = view.add_mutually_exclusive_group()
    texts.add_argument("--text", help="what the model reads")
    texts.add_argument(
        "--text-file", metavar="FILE", help="a file with what the model reads, - for stdin"
    )
    view.add_argument("--text-pair", metavar="TEXT", help="second text of a pair")
    view.add_argument(
        "--image",
        type=Path,
        metavar="FILE",
        help="an image that the model sees, with --text or not",
    )
    produced = view.add_mutually_exclusive_group()
    produced.add_argument("--target", metavar="TEXT", help="what the model is made to produce")
    produced.add_argument(
        "--generate", type=int, metavar="N", help="let the model produce up to N tokens"
    )
    _add_position(view)
    view.add_argument(
        "--token", type=_place, metavar="TOKEN", help="the pinned query: its number or its text"
    )
    view.add_argument("--key", type=_place, metavar="TOKEN", help="the pinned key, likewise")
    _add_capture_options(view)
    view.add_argument("--words", action="store_true", help="merge subword tokens into words")
    _add_output(view)


def _add_compare_view(commands: Any) -> None:
    what = "two texts, models or records, and what differs between their heads"
    view = commands.add_parser(
        "compare-view",
        help=what,
        description=f"Write the compare view of {what}: one --model and two --text, two --model or "
        "more and one --text, or two --load or more. The first is what the others are compared "
        "with.",
        epilog='example: attnviz compare-view --model ./my-bert --text "He sat." --text "She sat."',
    )
    view.set_defaults(parser=view)
    for name, metavar, meant in (
        ("--model", "ID", "hub id or folder; again for another model"),
        ("--text", "TEXT", "what the model reads; again for another text"),
        ("--text-file", "FILE", "a file with what the model reads, in place of a --text"),
        ("--load", "RECORD", "a saved record in place of a model and a text; again for the other"),
        ("--name", "NAME", "what the first is called; again for each other"),
    ):
        view.add_argument(name, action="append", default=[], metavar=metavar, help=meant)
    view.add_argument("--target", metavar="TEXT", help="what the model is made to produce")
    _add_position(view)
    view.add_argument(
        "--token", type=_place, metavar="TOKEN", help="the pinned query: its number or its text"
    )
    view.add_argument("--key", type=_place, metavar="TOKEN", help="the pinned key, likewise")
    view.add_argument(
        "--form", choices=["head", "matrix"], default="head", help="lines or matrices (head)"
    )
    view.add_argument(
        "--order", choices=["number", "distance"], default="number", help="of the heads (number)"
    )
    _add_capture_options(view, spool=False)
    view.add_argument("--words", action="store_true", help="merge subword tokens into words")
    _add_output(view)


def _add_embedding_view(commands: Any) -> None:
    what = "queries and keys of many texts as points"
    view = commands.add_parser(
        "embedding-view",
        help=what,
        description=f"Run a model on many texts and write its embedding view: {what}.",
        epilog="example: attnviz embedding-view --model ./my-gpt2 --texts texts.txt -o x.html",
    )
    view.add_argument("--model", required=True, metavar="ID", help="hub id or folder")
    view.add_argument(
        "--texts", required=True, type=Path, metavar="FILE", help="what the model reads, one a line"
    )
    view.add_argument(
        "--points",
        type=int,
        default=5_000,
        metavar="N",
        help="queries and keys of a head that are looked at together (default: %(default)s)",
    )
    view.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the random order of texts, and of t-SNE and UMAP (default: %(default)s)",
    )
    _add_position(view)
    view.add_argument(
        "--enlarged", action="store_true", help="show one head, the first chosen, and not all"
    )
    view.add_argument("--color", help="type, position, norm, frequency, punctuation, text, ...")
    view.add_argument(
        "--method",
        choices=["pca", "tsne", "umap"],
        default="pca",
        help="how the enlarged head is projected; tsne and umap enlarge it (default: %(default)s)",
    )
    view.add_argument(
        "--top-keys",
        type=int,
        default=0,
        metavar="N",
        help="strongest keys stored for each query, for its lines (default: %(default)s)",
    )
    _add_capture_options(view)
    _add_file(view, "default: 40")


def _add_atlas(commands: Any) -> None:
    what = "what every head does over many texts: roles, statistics and edges"
    view = commands.add_parser(
        "atlas",
        help=what,
        description=f"Run a model on many texts, or take statistics that were saved, and write "
        f"{what}. "
        '"merge FILE FILE ... -o FILE" adds up the statistics of parts of a corpus.',
        epilog="example: attnviz atlas --model ./my-gpt2 --texts corpus.txt -o atlas.html",
    )
    view.set_defaults(parser=view)
    view.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="saved statistics in place of a model, a .safetensors file; or merge and several",
    )
    view.add_argument("--model", metavar="ID", help="hub id or folder")
    view.add_argument(
        "--texts", type=Path, metavar="FILE", help="what the model reads, one text a line"
    )
    view.add_argument(
        "--batch-size", type=int, metavar="N", help="texts in a forward (default: by memory)"
    )
    view.add_argument(
        "--edges",
        type=int,
        default=100,
        metavar="N",
        help="strongest edges, and sampled ones, of each head (default: %(default)s)",
    )
    view.add_argument("--seed", type=int, default=0, metavar="N", help="of the sample (0)")
    view.add_argument(
        "--part",
        type=_part,
        metavar="I/N",
        help="read the I-th of N parts of the texts, as one job of an array; see merge",
    )
    view.add_argument(
        "--save", type=Path, metavar="FILE", help="write the statistics too, x.safetensors"
    )
    view.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="keeps what was read every half minute (default: beside the output, removed at the "
        "end)",
    )
    view.add_argument(
        "--resume", action="store_true", help="go on with what the checkpoint holds, if it is there"
    )
    _add_position(view)
    view.add_argument("--color", help="role, or the name of a statistic (role)")
    view.add_argument("--order", help="number, role, or the name of a statistic (number)")
    view.add_argument(
        "--layers", type=_numbers, metavar="N,N", help="layers to measure, such as 0,5 or 0-3"
    )
    view.add_argument("--keep-heads", type=_numbers, metavar="N,N", help="heads to measure")
    view.add_argument(
        "--truncate",
        type=int,
        nargs="?",
        const=True,
        metavar="N",
        help="cut texts that are too long for the model, or to N tokens",
    )
    _add_file(view, "default: 5; with fewer edges where they do not fit")


def _part(text: str) -> tuple[int, int]:
    """A part and how many there are, as in 3/16."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part such as 3/16, the third of 16")
    return int(found[1]), int(found[2])


def _add_position(view: argparse.ArgumentParser) -> None:
    view.add_argument("--stack", help="self, encoder, decoder, cross, ...")
    view.add_argument("--layer", type=int, help="layer shown first; -1 is the last")
    view.add_argument(
        "--heads", type=_heads, nargs="+", metavar="N,N", help="chosen heads, such as 0,3; or all"
    )


def _add_capture_options(view: argparse.ArgumentParser, *, spool: bool = True) -> None:
    view.add_argument(
        "--layers", type=_numbers, metavar="N,N", help="layers to keep, such as 0,5 or 0-3"
    )
    view.add_argument("--keep-heads", type=_numbers, metavar="N,N", help="heads to keep")
    view.add_argument(
        "--dtype", metavar="DTYPE", help="as what queries and keys are kept: float16, bfloat16, ..."
    )
    view.add_argument(
        "--device", default="cpu", help="where queries and keys are kept (default: %(default)s)"
    )
    if spool:
        view.add_argument(
            "--spool", metavar="FOLDER", help="write queries and keys there, not into memory"
        )
    view.add_argument(
        "--truncate",
        type=int,
        nargs="?",
        const=True,
        metavar="N",
        help="cut a text that is too long for the model, or to N tokens",
    )


def _numbers(text: str) -> list[int]:
    """Numbers and spans of them, as in 0,3-5; -1 is the last."""
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(-?\d+)(?:-(\d+))?\s*", part)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,5 or 0-3")
        span = range(int(found[1]), int(found[2] or found[1]) + 1)
        if len(numbers) + len(span[:MOST_NUMBERS]) >= MOST_NUMBERS:
            raise argparse.ArgumentTypeError(
                f"{shown(text)} has more than {MOST_NUMBERS:,} numbers; no model has so many"
            )
        numbers += span
    return numbers


def _heads(text: str) -> list[int] | None:
    """Heads as numbers; None stands for all."""
    return None if text == "all" else _numbers(text)


def _place(text: str) -> int | str:
    """The number of a token, or its text."""
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _add_output(command: argparse.ArgumentParser) -> None:
    _add_file(command, "default: 6, for a long text up to 80; with --exact whatever it takes")
    command.add_argument(
        "--exact",
        action="store_true",
        help="store every weight, of at most 200 million, or queries and keys as they are where "
        "that is smaller; in no more than --max-mb, if given",
    )


def _add_file(command: argparse.ArgumentParser, usual_size: str) -> None:
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="x.html, x.pdf, x.svg or x.png (default: a page under the model's and the view's "
        "name, as in my-bert-head-view.html)",
    )
    command.add_argument(
        "--max-mb",
        type=float,
        metavar="MB",
        help=f"megabytes that the page may have ({usual_size})",
    )
    command.add_argument(
        "--theme", choices=["auto", "light", "dark"], default="auto", help="colours"
    )
    command.add_argument(
        "--controls",
        choices=["auto", "full", "compact", "none"],
        default="auto",
        help="which controls the page shows: all, layer and heads in a row with the rest behind a "
        "button, or none (default: all, and compact in a frame lower than 600 pixels)",
    )
    _add_figure(command)


def _add_figure(command: argparse.ArgumentParser) -> None:
    """How a picture looks; the same as the arguments of `View.save`."""
    figure = command.add_argument_group("of a picture, -o x.pdf, x.svg or x.png")
    lengths = "such as 84mm, 3.3in or 240pt; a bare number is of"
    figure.add_argument("--width", metavar="LENGTH", help=f"of the picture, {lengths} CSS pixels")
    figure.add_argument(
        "--font-size", metavar="SIZE", help=f"of the smallest text, {lengths} points"
    )
    figure.add_argument(
        "--font", metavar="NAME", help="of all texts: the name of an installed font"
    )
    figure.add_argument("--dpi", type=float, metavar="N", help="pixels of a PNG to the inch")
    figure.add_argument("--scale", type=float, metavar="N", help="pixels of a PNG to a CSS pixel")
    figure.add_argument("--title", metavar="TEXT", help='above the picture; "" for none')
    figure.add_argument("--background", metavar="COLOR", help="transparent, or #ffffff")
    figure.add_argument(
        "--no-caption", dest="caption", action="store_const", const=False, help="no sentences below"
    )
    figure.add_argument(
        "--no-legend", dest="legend", action="store_const", const=False, help="no legends, no scale"
    )


def _figure(options: argparse.Namespace) -> FigureArguments:
    """The arguments of pictures that were given."""
    from attnviz.pages.figure import FigureArguments

    given = {
        name: getattr(options, name)
        for name in FigureArguments.__annotations__.keys() - {"theme", "colors"}
        if getattr(options, name) is not None
    }
    for name in ("width", "font_size"):
        if name in given and _is_number(given[name]):
            given[name] = float(given[name])
    return cast("FigureArguments", given)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_figure(kind: str, figure: FigureArguments, theme: str) -> None:
    """Refuse what cannot be drawn, or a machine that cannot draw, before a model runs."""
    from attnviz.pages.figure import figure_options

    figure_options(figure, theme)
    if kind != "html":
        from attnviz.pages.image import check_browser

        check_browser()
    elif figure:
        option = "--" + next(iter(figure)).replace("_", "-")
        if option in ("--caption", "--legend"):
            option = option.replace("--", "--no-")
        raise ValueError(f"{option} is of pictures: write one, -o x.pdf, x.svg or x.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Examples
    --------
    >>> main(["demo", "-o", "head_view.html"])    # doctest: +SKIP
    0
    """
    options = _parser().parse_args(arguments)
    if options.command is None:
        # Asked for nothing: said what there is to ask for.
        options.parser.print_help()
        return 0
    checks = {"compare-view": _check_compared, "atlas": _check_atlas}
    checks |= dict.fromkeys(_VIEWS, _check_source)
    if options.command in checks:
        checks[options.command](options)
    from traitlets import TraitError

    try:
        path = _written(options)
    except KeyboardInterrupt:
        print(f"attnviz: interrupted, {_kept(options) or 'nothing was written'}", file=sys.stderr)
        return 130
    except (
        *(ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
        TraitError,
    ) as error:
        print(f"attnviz: {_reason(error)}", file=sys.stderr)
        if not isinstance(error, FileExistsError) and (kept := _kept(options)):
            print(f"attnviz: {kept}", file=sys.stderr)
        return 1
    offer_file(path)
    return 0


def _written(options: argparse.Namespace) -> Path:
    """Do what a command says, and give the place of the file that it wrote."""
    from attnviz.pages.limits import check_file_kind, check_options, check_top_keys

    if options.command == "atlas" and options.files[:1] == ["merge"]:
        return _merge(options)
    precision: PagePrecision = "exact" if getattr(options, "exact", False) else "auto"
    output: Path | None = options.output
    # Checked before a model runs, not after: a spool folder is written once.
    kind = "html" if output is None else check_file_kind(output)
    check_options(precision, options.max_mb)
    if output is not None and not output.parent.is_dir():
        folder = str(output.parent)
        raise FileNotFoundError(f"-o {output}: the folder {folder!r} does not exist")
    figure = _figure(options)
    _check_figure(kind, figure, options.theme)
    if options.command == "atlas":
        return _atlas(options, figure)
    if options.command == "embedding-view":
        if check_top_keys(options.top_keys) and output is not None and kind != "html":
            raise ValueError(
                f"--top-keys {options.top_keys}: {output.name} has no lines, which are drawn "
                "where a reader chooses a query; write a page, -o x.html"
            )
        points = _embedding_view(options)
        output = output or Path(f"{points.file_name}.html")
        return points.save(output, max_mb=options.max_mb, top_keys=options.top_keys, **figure)
    making = {"demo": _demo, "compare-view": _compare_view}
    view = making.get(options.command, _view)(options)
    output = output or Path(f"{view.file_name}.html")
    return view.save(output, precision=precision, max_mb=options.max_mb, **figure)


def _kept(options: argparse.Namespace) -> str:
    """What an unfinished command leaves to go on with, in words; "" for nothing."""
    kept: Path | None = getattr(options, "kept", None)
    if kept is None or not kept.exists():
        return ""
    return f"what was read is in {kept}: the same command with --resume goes on"


def _demo(options: argparse.Namespace) -> RecordView:
    from attnviz import demos
    from attnviz.views.show import record_of

    print(f"attnviz: running the demo model {options.model!r}", file=sys.stderr)
    model, reader = demos.load(options.model)
    example = demos.example(options.model)
    record = record_of(model, example.pop("inputs"), **_read_by(options.model, reader), **example)
    shown = _view_class(options.view)
    look = {"theme": options.theme, "controls": options.controls}
    return shown(record, **look, **_strongest_position(record, options.model))


def _view_class(command: str) -> type[RecordView]:
    view: type[RecordView] = getattr(attnviz, _VIEWS[command][0])
    return view


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
        for head in stack.kept_heads(layer)
        if layer > 0
    }
    layer, head = max(largest, key=lambda each: largest[each])
    return {"stack": name, "layer": layer, "heads": [head], "token": token}


def _read_by(model: str, reader: Any) -> dict[str, Any]:
    return {"processor" if model.startswith("vision") else "tokenizer": reader}


# Options that say what a model runs on, and how: a saved record has no use for them.
_OF_MODELS = (
    *("model", "text", "text_file", "text_pair", "image", "target", "generate", "truncate"),
    *("keep_heads", "dtype", "spool"),
)


def _check_source(options: argparse.Namespace) -> None:
    """End with a usage message where it is not one model with its input, or one record."""
    wrong: Callable[[str], NoReturn] = options.parser.error
    if options.saved is not None and options.record is not None:
        wrong("give RECORD once, by itself or as --record")
    options.saved = options.saved if options.record is None else options.record
    if options.saved is not None:
        given = [name for name in _OF_MODELS if getattr(options, name) is not None]
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            wrong(
                f"{options.saved!r} stands for a saved record, which needs no model: leave out "
                f"{flags}; a model's folder or hub id is given as --model"
            )
        return
    if options.model is None:
        wrong("give --model ID with --text TEXT, or a saved record")
    if options.text is None and options.text_file is None and options.image is None:
        wrong("give what the model reads: --text, --text-file or --image")
    if options.image is not None and options.text_pair is not None:
        wrong("--image goes with one text: leave out --text-pair")
    if options.text_pair is not None and options.text is None and options.text_file is None:
        wrong("--text-pair is the second text: give --text too")


def _check_compared(options: argparse.Namespace) -> None:
    """End with a usage message where it is none of the three things that can be compared."""
    wrong: Callable[[str], NoReturn] = options.parser.error
    models, loaded = len(options.model), len(options.load)
    texts = len(options.text) + len(options.text_file)
    if loaded:
        given = [
            f"--{name.replace('_', '-')}"
            for name in ("model", "text", "text_file", "target", "truncate", "keep_heads", "dtype")
            if getattr(options, name)
        ]
        if given:
            wrong(f"--load takes saved records, which need no model: leave out {', '.join(given)}")
        if loaded == 1:
            wrong("give --load RECORD for each of the records: two or more")
    elif (models == 1 and texts != 2) or (models > 1 and texts != 1) or not models:
        wrong(
            "give one --model and two --text, two --model or more and one --text, or two --load or "
            f"more; there are {models} models and {texts} texts"
        )
    count = loaded or max(models, texts)
    if options.name and len(options.name) != count:
        wrong(f"give --name for each of the {count}, or for none; there are {len(options.name)}")


def _compare_view(options: argparse.Namespace) -> RecordView:
    from attnviz.comparison.compare import compare

    of_all: dict[str, Any] = {"names": _names(options), "words": options.words}
    if options.load:
        print(f"attnviz: reading {', '.join(options.load)}", file=sys.stderr)
        records = [attnviz.load(Path(file).expanduser()) for file in options.load]
        if options.layers is not None:
            records = [record.only(options.layers) for record in records]
        comparison = compare(records, **of_all)
    else:
        texts = [*options.text, *map(_text_of, options.text_file)]
        if options.keep_heads is not None:
            of_all.setdefault("heads", options.keep_heads)
        if options.truncate is not None:
            of_all["truncation"] = options.truncate
        print(f"attnviz: loading and running {', '.join(options.model)}", file=sys.stderr)
        several = len(options.model) > 1
        comparison = compare(
            options.model if several else options.model[0],
            *texts,
            target=options.target,
            layers=options.layers,
            dtype=options.dtype,
            device=options.device,
            **of_all,
        )
    given = {
        name: getattr(options, name)
        for name in ("stack", "layer", "token", "key")
        if getattr(options, name) is not None
    } | _chosen_heads(options)
    look = {name: getattr(options, name) for name in ("form", "order", "theme", "controls")}
    return attnviz.CompareView(comparison, **given, **look)


def _names(options: argparse.Namespace) -> list[str] | None:
    """The names that were given; else those of models or files, where they differ."""
    if options.name:
        return list(options.name)
    files = options.load or (options.model if len(options.model) > 1 else [])
    names = [Path(file).stem if options.load else Path(file).name for file in files]
    return names if names and all(names) and len(set(names)) == len(names) else None


def _view(options: argparse.Namespace) -> RecordView:
    record = _saved(options) if options.saved is not None else _extracted(options)
    given = {
        name: getattr(options, name)
        for name in ("stack", "layer", "token", "key")
        if getattr(options, name) is not None
    } | _chosen_heads(options)
    given |= {"theme": options.theme, "controls": options.controls}
    return _view_class(options.command)(record, **given)


def _chosen_heads(options: argparse.Namespace) -> dict[str, Any]:
    parts = options.heads
    if parts is None:
        return {}
    return {"heads": "all" if None in parts else [head for part in parts for head in part]}


def _saved(options: argparse.Namespace) -> AttentionRecord:
    """The record of a file or a folder, with the layers that are asked for."""
    from attnviz.views.show import record_of

    place = Path(options.saved).expanduser()
    if (place / "config.json").is_file():
        raise ValueError(f"{options.saved!r} is a model: give it as --model, with --text")
    print(f"attnviz: reading {options.saved}", file=sys.stderr)
    record = attnviz.load(place)
    if options.layers is not None:
        record = record.only(options.layers)
    return record_of(record, words=options.words)


def _extracted(options: argparse.Namespace) -> AttentionRecord:
    """The record of a model that runs now."""
    from attnviz.views.show import record_of

    inputs = _inputs(options)
    print(f"attnviz: loading and running {options.model}", file=sys.stderr)
    record = record_of(
        options.model,
        inputs,
        target=options.target,
        generate=options.generate,
        truncation=False if options.truncate is None else options.truncate,
        words=options.words,
        layers=options.layers,
        keep_heads=options.keep_heads,
        dtype=options.dtype,
        device=options.device,
        spool=options.spool,
    )
    if options.spool is not None:
        # Also where no page can be made of it: the model need not run again.
        print(
            f"attnviz: the record is in {options.spool}, attnviz.load({options.spool!r}) reads it",
            file=sys.stderr,
        )
    return record


def _inputs(options: argparse.Namespace) -> Any:
    """What the model reads and sees."""
    text = options.text
    if options.text_file is not None:
        text = _text_of(options.text_file)
    if options.image is not None:
        image = _image(options.image)
        return image if text is None else (image, text)
    return text if options.text_pair is None else (text, options.text_pair)


def _text_of(file: str) -> str:
    """The text of a file, or of stdin, without the line's end that editors put behind it."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"--text-file {file} is not UTF-8: {error}") from None
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise ValueError(f"--text-file {file} contains no text")
    return text


def _image(file: Path) -> Any:
    """An image, upright."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImportError("--image needs Pillow: pip install 'attnviz[vision]'") from None
    try:
        with Image.open(file) as opened:
            return ImageOps.exif_transpose(opened)
    except UnidentifiedImageError:
        raise ValueError(f"--image {file} is not an image that Pillow can read") from None


def _embedding_view(options: argparse.Namespace) -> EmbeddingView:
    from attnviz.embedding.show import corpus_of
    from attnviz.embedding.view import EmbeddingView

    texts = _lines(options.texts)
    print(f"attnviz: loading and running {options.model}", file=sys.stderr)
    shown = {
        name: getattr(options, name)
        for name in ("stack", "layer", "color", "method", "theme", "controls")
        if getattr(options, name) is not None
    } | _chosen_heads(options)
    # Small plots are by principal components alone.
    shown["enlarged"] = options.enlarged or options.method != "pca"
    corpus = corpus_of(
        options.model,
        texts,
        points=options.points,
        seed=options.seed,
        traits=shown,
        truncation=False if options.truncate is None else options.truncate,
        layers=options.layers,
        keep_heads=options.keep_heads,
        dtype=options.dtype,
        device=options.device,
        spool=options.spool,
    )
    return EmbeddingView(corpus, seed=options.seed, **shown)


# Options of an atlas that say what a model reads, and how: saved statistics have no use for them.
_OF_MEASURING = (
    *("model", "texts", "batch_size", "part", "save"),
    *("checkpoint", "resume", "layers", "keep_heads", "truncate"),
)


def _check_atlas(options: argparse.Namespace) -> None:
    """End with a usage message where it is neither a model with texts nor saved statistics."""
    wrong: Callable[[str], NoReturn] = options.parser.error
    files = options.files
    if files:
        given = [f"--{name.replace('_', '-')}" for name in _OF_MEASURING if getattr(options, name)]
        if given:
            wrong(
                f"{' '.join(files)} stands for saved statistics, which need no model: leave out "
                f"{', '.join(given)}"
            )
    if files[:1] == ["merge"]:
        if len(files) < 2:
            wrong("merge needs the files of statistics: merge a.safetensors b.safetensors -o FILE")
        if options.output is None:
            wrong("merge writes a file: give -o statistics.safetensors")
        if options.output.suffix.lower() not in (".safetensors", ".parquet"):
            wrong(f"-o {options.output}: merge writes a .safetensors or a .parquet file")
    elif len(files) > 1:
        wrong(f"give one file of statistics, or add them up: merge {' '.join(files)} -o FILE")
    elif not files and (options.model is None or options.texts is None):
        wrong("give --model ID with --texts FILE, or a file of saved statistics")
    if options.save is not None and options.save.suffix.lower() not in (".safetensors", ".parquet"):
        wrong(f"--save {options.save}: statistics are saved as .safetensors or .parquet")


def _atlas(options: argparse.Namespace, figure: FigureArguments) -> Path:
    """Write an atlas, of saved statistics or of a model that reads now; or these alone."""
    from attnviz.atlas.view import AtlasView

    statistics = _loaded(options.files[0]) if options.files else _measured(options)
    if options.save is not None:
        saved: Path = statistics.save(options.save)
        # Of a part of the texts a page is rarely wanted.
        if options.output is None:
            return saved
        print(f"attnviz: the statistics are in {saved}", file=sys.stderr)
    shown = {
        name: getattr(options, name)
        for name in ("stack", "layer", "color", "order", "theme", "controls")
        if getattr(options, name) is not None
    } | _chosen_heads(options)
    view: AtlasView = AtlasView(statistics, **shown)
    output = options.output or Path(f"{view.file_name}.html")
    return view.save(output, max_mb=options.max_mb, **figure)


def _measured(options: argparse.Namespace) -> HeadStatistics:
    from attnviz.corpus.head_statistics import head_statistics

    for option in ("save", "checkpoint"):
        place = getattr(options, option)
        if place is not None and not place.absolute().parent.is_dir():
            folder = str(place.parent)
            raise FileNotFoundError(f"--{option} {place}: the folder {folder!r} does not exist")
    texts = _lines(options.texts)
    result = options.save or options.output or Path("atlas.html")
    # An hour of reading must not be lost to an error or an interrupt.
    options.kept = options.checkpoint or result.with_name(f"{result.name}.checkpoint.safetensors")
    print(f"attnviz: loading and running {options.model}", file=sys.stderr)
    statistics = head_statistics(
        options.model,
        texts,
        truncation=False if options.truncate is None else options.truncate,
        layers=options.layers,
        heads=options.keep_heads,
        batch_size="auto" if options.batch_size is None else options.batch_size,
        edges=options.edges,
        seed=options.seed,
        part=options.part,
        checkpoint=options.kept,
        resume=options.resume,
    )
    if options.checkpoint is None:
        options.kept.unlink(missing_ok=True)
    return statistics


def _loaded(file: str) -> HeadStatistics:
    from attnviz.corpus.statistics import HeadStatistics

    print(f"attnviz: reading {file}", file=sys.stderr)
    return HeadStatistics.load(Path(file).expanduser())


def _merge(options: argparse.Namespace) -> Path:
    """Write the sum of several statistics."""
    if not options.output.absolute().parent.is_dir():
        folder = str(options.output.parent)
        raise FileNotFoundError(f"-o {options.output}: the folder {folder!r} does not exist")
    first, *rest = options.files[1:]
    total = _loaded(first)
    for file in rest:
        try:
            total += _loaded(file)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    merged: Path = total.save(options.output)
    return merged


def _lines(path: Path) -> list[str]:
    """Return the texts of a file, one per line.

    A line ends at a line feed. `str.splitlines` would also cut at characters that a text may hold,
    such as U+2028.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"--texts {path} is not UTF-8: {error}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"--texts {path} contains no text; give one per line")
    return texts


def _reason(error: BaseException) -> str:
    """What went wrong, without the quotes that Python puts around a KeyError's text."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
