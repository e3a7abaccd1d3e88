"""Command line of attnviz: ``attnviz demo`` writes a page that shows a demo model.

The path of the page is printed to stdout. Progress and errors are printed to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import attnviz
from attnviz.utils.host import offer_file

_DEMO = "Write a page that shows one of the tiny trained models of attnviz."

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code: 0, or 1 if the page cannot be written.

    `arguments` are the name of the command and its arguments, by default those in ``sys.argv``.

    Examples
    --------
    >>> main(["demo", "-o", "head_view.html"])    # doctest: +SKIP
    0
    """
    parser = argparse.ArgumentParser(
        prog="attnviz",
        description="See how a transformer attends. All views are functions of Python, such as "
        "attnviz.show_head_view(model, text).",
    )
    parser.add_argument("--version", action="version", version=f"attnviz {attnviz.__version__}")
    demo = parser.add_subparsers(dest="command").add_parser("demo", help=_DEMO, description=_DEMO)
    demo.add_argument("--model", default="decoder", choices=[*_QUERIES], help="demo model")
    demo.add_argument("-o", "--output", type=Path, metavar="FILE", help="such as x.html")
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        path = _write_demo(options.model, options.output)
    except (ImportError, MemoryError, OSError, RuntimeError, ValueError) as error:
        print(f"attnviz: {error}", file=sys.stderr)
        return 1
    offer_file(path)
    return 0


def _write_demo(name: str, output: Path | None) -> Path:
    """Write a head view that shows what a demo model learned, and return the path of the file.

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
    view = attnviz.HeadView(record, stack=stack_name, layer=layer, heads=[head], token=token)
    return view.save(output or f"{view.file_name}.html")
