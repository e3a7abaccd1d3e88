"""The layers and heads that a caller wanted, taken from those that ran, and what to say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from attnviz.extraction.capture.captured import Captured
from attnviz.extraction.capture.collector import Run
from attnviz.extraction.capture.copies import SAMPLED, Copier
from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.options import Keeping
from attnviz.utils.spans import spans

__all__ = ["kept_layers", "notes_of_kept"]


def kept_layers(
    stacks: Mapping[str, StackLayers], keeping: Keeping
) -> dict[str, StackLayers] | None:
    """Take the layers and heads that are to be kept.

    Parameters
    ----------
    stacks : mapping of str to StackLayers
        All that ran, under their numbers; of what was not copied there are only shapes.
    keeping : Keeping
        What is to be kept.

    Returns
    -------
    dict of str to StackLayers, or None
        Stacks that have any of it. None where something that is wanted was not copied, as its
        number is another one than had been foretold.

    Raises
    ------
    ValueError
        If no stack has a layer, or no layer a head, of that number; says which there are.
    """
    if keeping.everything:
        return dict(stacks)
    _refuse_layers(stacks, keeping)
    _refuse_heads(stacks, keeping)
    kept = {}
    for name, layers in stacks.items():
        some = _of_stack(layers, keeping)
        if some is None:
            return None
        if some.runs:
            kept[name] = some
    return kept


def _of_stack(layers: StackLayers, keeping: Keeping) -> StackLayers | None:
    # Neither place nor dtype change any more.
    copier = Copier(Keeping())
    examples: list[dict[int, Captured]] = [{} for _ in layers.examples]
    places = []
    for place, (number, run) in enumerate(zip(layers.examples[0], layers.runs, strict=True)):
        heads, copied = keeping.heads_of(number, run.num_heads), run.heads or ()
        if not set(heads) <= set(copied):
            return None
        if not heads:
            continue
        places.append(place)
        chosen = [copied.index(head) for head in heads]
        for found, example in zip(examples, layers.examples, strict=True):
            whole = example[number]
            found[number] = whole if len(chosen) == len(copied) else copier.copy(whole, chosen)
        run.heads = heads
        run.errors = [run.errors[each] for each in chosen] if run.errors else []
    return replace(
        layers,
        names=[layers.names[place] for place in places],
        examples=examples,
        windows=[layers.windows[place] for place in places],
        runs=[layers.runs[place] for place in places],
    )


def _refuse_layers(stacks: Mapping[str, StackLayers], keeping: Keeping) -> None:
    known = {number for number, _ in _runs(stacks)}
    missing = [number for number in keeping.layers or () if number not in known]
    if missing:
        there = "; ".join(
            f"stack {name!r} has layers {spans(list(layers.examples[0]))}"
            for name, layers in stacks.items()
        )
        by_layer = isinstance(keeping.heads, Mapping) and missing[0] in keeping.heads
        raise ValueError(
            f"{'heads' if by_layer else 'layers'}: there is no layer {missing[0]}; {there}"
        )


def _refuse_heads(stacks: Mapping[str, StackLayers], keeping: Keeping) -> None:
    if keeping.heads is None:
        return
    if isinstance(keeping.heads, Mapping):
        groups = [({number}, heads) for number, heads in keeping.heads.items()]
    else:
        layers = {number for number, _ in _runs(stacks)}
        groups = [(layers if keeping.layers is None else set(keeping.layers), keeping.heads)]
    for numbers, heads in groups:
        counts = sorted({run.num_heads for number, run in _runs(stacks) if number in numbers})
        if heads[-1] >= counts[-1]:
            where = f"layer {min(numbers)}" if len(numbers) == 1 else "any layer that is kept"
            there = " or ".join(f"heads 0 to {count - 1}" for count in counts)
            raise ValueError(f"heads: there is no head {heads[-1]} in {where}; there are {there}")


def _runs(stacks: Mapping[str, StackLayers]) -> Iterator[tuple[int, Run]]:
    for layers in stacks.values():
        yield from zip(layers.examples[0], layers.runs, strict=True)


def notes_of_kept(
    before: Mapping[str, StackLayers], stacks: Mapping[str, StackLayers], keeping: Keeping
) -> list[str]:
    """What a reader must know of what was kept.

    Parameters
    ----------
    before : mapping of str to StackLayers
        All that ran.
    stacks : mapping of str to StackLayers
        What was kept of it.
    keeping : Keeping
        What was to be kept.

    Returns
    -------
    list of str
        Wanted layers that have none of the wanted heads, and how far weights are off because
        queries and keys, or they themselves, are kept rounded.
    """
    notes = []
    for name, layers in before.items():
        wanted = {
            number
            for number in layers.examples[0]
            if keeping.layers is None or number in keeping.layers
        }
        left = wanted - set(stacks[name].examples[0] if name in stacks else ())
        if left:
            several = "layers" if len(left) > 1 else "layer"
            notes.append(
                f"Of stack {name}, {several} {spans(sorted(left))} left out: none of the wanted "
                "heads is there."
            )
    errors: dict[bool, list[float]] = {False: [], True: []}
    for layers in stacks.values():
        for found, run in zip(layers.examples[0].values(), layers.runs, strict=True):
            errors[found.vectors is None] += run.errors
    dtype = str(keeping.dtype).removeprefix("torch.")
    if errors[False]:
        notes.append(
            f"Queries and keys were kept in {dtype}: weights differ by up to "
            f"{_upwards(max(errors[False]))}, measured on {SAMPLED} queries of each head."
        )
    if errors[True]:
        notes.append(
            f"Weights whose queries and keys are not known were kept in {dtype}: they, and the "
            f"sums of their rows, differ by up to {_upwards(max(errors[True]))}."
        )
    return notes


def _upwards(error: float) -> str:
    """Two digits, rounded so that "up to" holds."""
    if not error:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(error)) - 1)
    return f"{math.ceil(error / unit) * unit:.2g}"
