"""The command line: the same views, written as files.

``attnviz demo``, ``attnviz head-view`` and a command for each other view; results go to stdout,
progress and errors to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attnviz
from attnviz.utils.host import offer_file

if TYPE_CHECKING:
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
  attnviz neuron-view --model ./my-gpt2 --text "The cat sat." --layer 3 --heads 1 --words
  attnviz model-view --model ./my-llama --text "The cat sat." --layers 0,8-11 --dtype bfloat16
  attnviz head-view --model ./my-gpt2 --text "The cat sat." --max-mb 2 -o small.html
  attnviz head-view --model ./my-bert --text "The cat sat." -o x.pdf --width 84mm --font-size 8
  attnviz embedding-view --model ./my-gpt2 --texts texts.txt --points 5000 -o points.html

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
# first dash the month, CLS the shape.
_QUERIES = {
    "decoder": ("self", -1),
    "encoder-decoder": ("cross", 5),
    "vision": ("vision", 0),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnviz",
        description="See how a transformer attends.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attnviz {attnviz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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
        choices=["decoder", "encoder-decoder", "vision"],
        help="which of the demo models (default: %(default)s)",
    )
    demo.add_argument(
        "--view", default="head-view", choices=_VIEWS, help="which view (default: %(default)s)"
    )
    _add_output(demo)
    for name, (_, what) in _VIEWS.items():
        _add_view(commands, name, what)
    _add_embedding_view(commands)
    return parser


def _add_view(commands: Any, name: str, what: str) -> None:
    view = commands.add_parser(
        name,
        help=what,
        description=f"Run a model on a text and write its {name.replace('-', ' ')}: {what}.",
        epilog=f'example: attnviz {name} --model ./my-bert --text "The cat sat." -o x.html',
    )
    view.add_argument("--model", required=True, metavar="ID", help="hub id or folder")
    view.add_argument("--text", required=True, help="what the model reads")
    view.add_argument("--text-pair", metavar="TEXT", help="second text of a pair")
    produced = view.add_mutually_exclusive_group()
    produced.add_argument("--target", metavar="TEXT", help="what the model is made to produce")
    produced.add_argument(
        "--generate", type=int, metavar="N", help="let the model produce up to N tokens"
    )
    _add_position(view)
    view.add_argument("--token", type=int, metavar="N", help="number of the pinned query")
    _add_capture_options(view)
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


def _add_position(view: argparse.ArgumentParser) -> None:
    view.add_argument("--stack", help="self, encoder, decoder, cross, ...")
    view.add_argument("--layer", type=int, help="layer shown first")
    view.add_argument("--heads", type=int, nargs="+", metavar="HEAD", help="chosen heads")


def _add_capture_options(view: argparse.ArgumentParser) -> None:
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
    view.add_argument(
        "--spool", metavar="FOLDER", help="write queries and keys there, not into memory"
    )


def _numbers(text: str) -> list[int]:
    """Numbers and spans of them, as in 0,3-5."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,5 or 0-3") from None
    return numbers


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
        help="x.html, x.pdf, x.svg or x.png (default: the view's name, as in head_view.html)",
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
        choices=["auto", "full", "compact", "minimal", "none"],
        default="auto",
        help="which controls the page shows: all, layer and heads in a row with the rest behind a "
        "button, that row alone, or none (default: all, and compact in a frame lower than 600 "
        "pixels)",
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
    from traitlets import TraitError

    from attnviz.pages.limits import check_file_kind, check_options, check_top_keys

    precision: PagePrecision = "exact" if getattr(options, "exact", False) else "auto"
    try:
        shown = options.view if options.command == "demo" else options.command
        output = options.output or Path(f"{shown.replace('-', '_')}.html")
        # Checked before a model runs, not after: a spool folder is written once.
        kind = check_file_kind(output)
        check_options(precision, options.max_mb)
        figure = _figure(options)
        _check_figure(kind, figure, options.theme)
        if options.command == "embedding-view":
            if check_top_keys(options.top_keys) and kind != "html":
                raise ValueError(
                    f"--top-keys {options.top_keys}: {output.name} has no lines, which are drawn "
                    "where a reader chooses a query; write a page, -o x.html"
                )
            points = _embedding_view(options)
            path = points.save(output, max_mb=options.max_mb, top_keys=options.top_keys, **figure)
        else:
            view = _demo(options) if options.command == "demo" else _view(options)
            path = view.save(output, precision=precision, max_mb=options.max_mb, **figure)
    except KeyboardInterrupt:
        print("attnviz: interrupted, nothing was written", file=sys.stderr)
        return 130
    except (
        *(ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
        TraitError,
    ) as error:
        print(f"attnviz: {_reason(error)}", file=sys.stderr)
        return 1
    offer_file(path)
    return 0


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
    return {"processor" if model == "vision" else "tokenizer": reader}


def _view(options: argparse.Namespace) -> RecordView:
    from attnviz.views.show import record_of

    print(f"attnviz: loading and running {options.model}", file=sys.stderr)
    text = options.text if options.text_pair is None else (options.text, options.text_pair)
    record = record_of(
        options.model,
        text,
        target=options.target,
        generate=options.generate,
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
    given = {
        name: getattr(options, name)
        for name in ("stack", "layer", "heads", "token")
        if getattr(options, name) is not None
    }
    given |= {"theme": options.theme, "controls": options.controls}
    return _view_class(options.command)(record, **given)


def _embedding_view(options: argparse.Namespace) -> EmbeddingView:
    from attnviz.embedding.show import corpus_of
    from attnviz.embedding.view import EmbeddingView

    texts = _lines(options.texts)
    print(f"attnviz: loading and running {options.model}", file=sys.stderr)
    shown = {
        name: getattr(options, name)
        for name in ("stack", "layer", "heads", "color", "method", "theme", "controls")
        if getattr(options, name) is not None
    }
    # Small plots are by principal components alone.
    shown["enlarged"] = options.enlarged or options.method != "pca"
    corpus = corpus_of(
        options.model,
        texts,
        points=options.points,
        seed=options.seed,
        traits=shown,
        layers=options.layers,
        keep_heads=options.keep_heads,
        dtype=options.dtype,
        device=options.device,
        spool=options.spool,
    )
    return EmbeddingView(corpus, seed=options.seed, **shown)


def _lines(path: Path) -> list[str]:
    """The texts of a file, one a line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
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
