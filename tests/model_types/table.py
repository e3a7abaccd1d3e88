"""The table of docs/coverage.md, made from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from model_types.check import DIFFERENT, ROUNDING
from model_types.classes import classes, flags, summary_of_classes
from model_types.control import NOTICED
from model_types.markdown import lines, number, plain, short
from model_types.rows import REFERENCED, Row

__all__ = ["DOCUMENT", "RESULTS", "share", "table", "versions"]

_ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = _ROOT / "docs" / "coverage.md"
RESULTS = _ROOT / "test-results" / "coverage.json"

# Rounding moves outputs by less than this where layers behind do not enlarge it.
_NOISY = 1e-4
_NOT_YET = ("refused", "partly", "wrong", "died", "too slow")
_HEAD = """\
# Which models attnviz reads

`make coverage` writes this page.

{versions}

For every model type of transformers, a tiny random model is built. Its queries and keys are scaled
up until rows have a clear peak, because a random model attends evenly and any formula would look
right. `attnviz.extract(model, inputs)` extracts its attention, and **every layer and head is
compared with the weights that the model itself returns** from eager attention, to 1e-4 in float32.
The model must not change: its configuration, its modes and hooks, and every bit of its output,
during the capture and after it. As a control, queries, keys, scale, mask and everything else that
goes into the weights are corrupted one by one, and the comparison must fail.

Then attention is changed, in every layer of one stack after the other. Without a head (**gate**)
the model must give, bit for bit, what it gives when the head's columns of its output projections
are set to 0. A change that changes nothing (**identity**) must leave every bit of what it gives.
The **projection** is the matrix behind a layer's attention, which value norms and direct
attributions need. It is found by following the attention's output, and must be a matrix whose input
loses a head's columns with the head.

Models are loaded with a head: each class that an auto class names for a model type is built and
compared, too. So is each model type under every setting of its configuration that changes its
attention, one at a time. They are compared with `use_cache=False`, and with `use_cache=True` if
they can have a cache. A stack of a text has a row for each of its tokens in each layer.

Rounding counts in both comparisons of weights: a T5 in float32, whose logits are not scaled, was
seen to differ from eager attention by up to 2.1e-4 in some settings, and all of it was rounding.

{summary}

"""


def versions() -> str:
    """What the table was made with, as its head says it."""
    names = ("transformers", "torch", "attnviz")
    return "Made with " + ", ".join(f"{name} {version(name)}" for name in names) + "."


def share(rows: Iterable[Row]) -> float:
    """How many model types that return their own weights are right, as a share of one."""
    counted = [
        row for row in rows if row.is_base and row.source == "output" and row.result in REFERENCED
    ]
    return sum(row.result == "ok" for row in counted) / max(1, len(counted))


def table(all_rows: Sequence[Row]) -> str:
    """The whole document."""
    rows = [row for row in all_rows if row.is_base]
    right = [row for row in rows if row.result == "ok"]
    parts = [
        _HEAD.format(versions=versions(), summary=_summary(rows, all_rows)),
        classes(all_rows),
        flags(all_rows),
        "\n## Model types that are right\n\n",
        "The error is the largest difference of all layers and heads; the peak is the median of "
        "the rows' largest weights. Stacks are named with their layers and heads. A gate is exact, "
        "or the answer changes but the attention's output is not what a matrix takes (changed), or "
        "it is refused; the stacks of which something else holds than of the others are named.\n\n",
        lines(
            (
                "Model type",
                "Class",
                "Stacks",
                "Kept",
                "Error",
                "Peak",
                "Gate",
                "Identity",
                "Projection",
            ),
            (
                (
                    row.model_type,
                    f"`{row.kind}`",
                    "; ".join(row.stacks),
                    row.way,
                    number(row.error),
                    "" if row.peak is None else f"{row.peak:.2f}",
                    *_changes(row),
                )
                for row in right
            ),
        ),
        _reasons(
            "## Not yet\n\nThese return weights, but attnviz cannot make the record or a part of "
            "it. An error (refused) or a warning (partly) says so at run time.",
            [row for row in rows if row.result in _NOT_YET],
        ),
        _remarks(right),
        _refused(right),
        _grouped(
            "## No weights to compare with\n\nModels without attention between tokens "
            "(convolutions, state-space models), or whose weights the model does not return.",
            [row for row in rows if row.result == "no own weights"],
        ),
        _grouped(
            "## Not tested\n\nTypes for which no tiny model was built, or that need other inputs. "
            "Many are parts of models that are tested.",
            [row for row in rows if row.result in ("not built", "no inputs")],
        ),
    ]
    return "".join(parts).rstrip() + "\n"


def _summary(rows: Sequence[Row], all_rows: Sequence[Row]) -> str:
    referenced = [row for row in rows if row.result in REFERENCED]
    output = [row for row in referenced if row.source == "output"]
    modules = [row for row in referenced if row.source == "modules"]
    right = [row for row in output if row.result == "ok"]
    errors = [row.error for row in referenced if row.result == "ok" and row.error is not None]
    ways = Counter(row.way for row in referenced if row.result == "ok")
    return "\n".join(
        [
            f"- **{len(right)} of {len(output)}** model types that return their own weights are "
            f"right (**{share(rows):.1%}**); the largest error is "
            f"{number(max(errors, default=0))}.",
            f"- {sum(row.result == 'ok' for row in modules)} of {len(modules)} others, which do "
            "not return weights, are equal to what their attention modules compute.",
            "- The record keeps "
            + ", ".join(f"{way} of {count} types" for way, count in ways.most_common())
            + ".",
            *summary_of_classes(all_rows),
            *_summary_of_changes(rows),
            f"- {len(rows)} model types in all: the others have no attention, do not return "
            "weights, or could not be tested here.",
        ]
    )


def _summary_of_changes(rows: Sequence[Row]) -> list[str]:
    tried = [row for row in rows if row.changes]
    stacks = [change for row in tried for change in row.changes.values()]
    gates = Counter(change.gate for change in stacks)
    by_row = [{change.gate == "refused" for change in row.changes.values()} for row in tried]
    done = [change for change in stacks if change.identity is not None]
    noises = sorted(change.noise for change in done if change.noise is not None)
    found = [{change.projection for change in row.changes.values()} for row in tried]
    same = sum(change.identity is True for change in done)
    others = gates["changed"] + gates["without effect"]
    return [
        f"- Attention can be changed in every stack of **{by_row.count({False})} of {len(tried)}** "
        f"model types, in some of {by_row.count({False, True})}, in none of "
        f"{by_row.count({True})}. Without a head {gates['exact']} of {len(stacks)} stacks give, "
        "bit for bit, what they give with the head's columns of their output projections set to 0; "
        f"{others} have no such matrix, or what the model gives does not depend on them; "
        f"{gates['refused']} are refused by name.",
        f"- A change that changes nothing left every bit in {same} of {len(done)} stacks. "
        "Outputs that are computed again from the same weights move what "
        f"the model gives by {number(noises[len(noises) // 2])} of its largest number in half of "
        f"the stacks, by more than {number(_NOISY)} in "
        f"{sum(noise > _NOISY for noise in noises)}.",
        f"- The output projection is found in every stack of {found.count({True})} of {len(tried)} "
        f"model types, in some of {found.count({False, True})}.",
    ]


def _changes(row: Row) -> tuple[str, str, str]:
    """What came of changing its stacks: the gate, an identity, the projection."""
    changes = row.changes
    identities = {change.identity for change in changes.values()} - {None}
    return (
        _by_stack({name: change.gate for name, change in changes.items()}),
        "bit-equal" if identities == {True} else "differs" if identities else "",
        _by_stack({name: "found" if each.projection else "none" for name, each in changes.items()}),
    )


def _by_stack(said: Mapping[str, str]) -> str:
    """The commonest, and what differs with the names of the stacks."""
    if not said:
        return ""
    usual = Counter(said.values()).most_common(1)[0][0]
    rest: dict[str, list[str]] = {}
    for name, each in said.items():
        if each != usual:
            rest.setdefault(each, []).append(name)
    return "; ".join([usual, *(f"{each}: {', '.join(names)}" for each, names in rest.items())])


def _refused(rows: Sequence[Row]) -> str:
    """Why attention cannot be changed, with the types of which that is so."""
    by_reason: dict[str, dict[str, None]] = {}
    for row in rows:
        for change in row.changes.values():
            if change.gate == "refused":
                by_reason.setdefault(_kind_of(change.reason), {})[row.model_type] = None
        if row.unchanged:
            by_reason.setdefault(short(row.unchanged), {})[row.model_type] = None
    by_number = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    if not by_number:
        return ""
    said = "Their weights are shown; `attnviz.intervene` refuses to change these stacks."
    entries = [f"- {reason}: {', '.join(names)}\n" for reason, names in by_number]
    return f"\n## Not changed\n\n{said}\n\n{''.join(entries)}"


def _kind_of(reason: str) -> str:
    """What is said of a module, without its name and its sizes."""
    for words in ("windows", "in parts", "one function", "several softmaxes", "gate that depends"):
        if words in reason:
            return _KINDS[words]
    return short(reason)


_KINDS = {
    "windows": "attends in windows, or with weights of groups of heads",
    "in parts": "attends to parts of its input, one after the other",
    "one function": "computes its attention in one torch function",
    "several softmaxes": "computes several softmaxes",
    "gate that depends": "multiplies its output by a gate that depends on the sink",
}


def _remarks(right: Sequence[Row]) -> str:
    """What a reader must know of types that are right."""
    parts = ["\n## Remarks\n\n"]
    for note, said in (
        (
            DIFFERENT,
            "transformers' eager attention computes something else than its default one; there the "
            "record of the eager model was compared",
        ),
        (
            ROUNDING,
            "Keys are so much alike that rows get a clear peak only where logits are in the "
            "hundreds or thousands. float32 rounds those so much that eager and default attention "
            "differ by more than 1e-4; there the same forward was compared in float64",
        ),
    ):
        names = [row.model_type for row in right if any(note in n for n in row.notes)]
        if names:
            parts.append(f"{said}: {', '.join(names)}.\n\n")
    noisy = [
        f"{row.model_type} ({name}, {number(change.noise)})"
        for row in right
        for name, change in row.changes.items()
        if change.noise is not None and change.noise > _NOISY
    ]
    if noisy:
        parts.append(
            "Outputs that are computed again from the same weights move what the model gives by "
            f"more than {number(_NOISY)} of its largest number, as its layers behind enlarge what "
            f"is rounded: {', '.join(noisy)}.\n\n"
        )
    missed = [row for row in right if row.unnoticed]
    if missed:
        parts.append(
            f"\nCorruptions that changed weights by less than {NOTICED:g}, so that the comparison "
            "proves little about them:\n\n"
        )
        parts += [f"- {row.model_type}: {', '.join(row.unnoticed[:4])}\n" for row in missed]
    unverified = [row for row in right if row.unverified]
    if unverified:
        parts.append(
            "\nStacks beside those that were compared, for which the model gives no weights of its "
            "own:\n\n"
        )
        parts += [f"- {row.model_type}: {', '.join(row.unverified)}\n" for row in unverified]
    return "".join(parts)


def _reasons(title: str, rows: Sequence[Row]) -> str:
    """A table with a line for each."""
    if not rows:
        return ""
    entries = (
        (row.model_type, f"`{row.kind}`" if row.kind else "", row.result, short(row.reason))
        for row in rows
    )
    return f"\n{title}\n\n" + lines(("Model type", "Class", "Result", "Reason"), entries)


def _grouped(title: str, rows: Sequence[Row]) -> str:
    """A list of reasons, each with those that have it."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(plain(row.result, row.reason), []).append(row.model_type)
    by_number = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    entries = [f"- {reason}: {', '.join(names)}\n" for reason, names in by_number]
    return f"\n{title}\n\n{''.join(entries)}" if entries else ""
