"""Whether there is room for what is to be kept, told before a model runs, and what would fit."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from attnviz.extraction.capture.estimate import LayerSize, needed_memory
from attnviz.extraction.capture.memory import free_memory, in_words
from attnviz.extraction.options import Keeping

__all__ = ["check_disk", "check_memory", "free_disk"]


def check_memory(
    sizes: Sequence[LayerSize],
    keeping: Keeping,
    free: Callable[[torch.device], int | None] | None = None,
    disk: Callable[[Path], int | None] | None = None,
) -> None:
    """Refuse to keep more in memory than there is room for.

    Parameters
    ----------
    sizes : sequence of LayerSize
        The layers that will run.
    keeping : Keeping
        What is to be kept of them.
    free : callable, optional
        Gives the bytes that a device has left, None where that is not known; `free_memory` when
        left out.
    disk : callable, optional
        The same for the disk that a folder lies on; `free_disk` when left out.

    Raises
    ------
    MemoryError
        If it would exceed what is free, with the arguments that would make it fit.
    """
    free = free or free_memory
    room = {device: free(device) for device in needed_memory(sizes, keeping)}

    def fits(layers: Sequence[LayerSize], other: Keeping) -> bool:
        for device, needed in needed_memory(layers, other).items():
            if device not in room:
                room[device] = free(device)
            most = room[device]
            # Where nobody tells what is free nothing can be said.
            if most is not None and needed > most:
                return False
        return True

    if fits(sizes, keeping):
        return
    needed = needed_memory(sizes, keeping)
    lacking = {
        each: count - most
        for each, count in needed.items()
        if (most := room[each]) is not None and count > most
    }
    device = max(lacking, key=lambda each: lacking[each])
    ways = [*_ways_out(sizes, keeping, fits)]
    written = (disk or free_disk)(Path.cwd())
    if written is not None and _on_disk(sizes, keeping) <= written:
        ways.append('spool="folder" (on disk)')
    raise MemoryError(
        f"inputs: keeping {_what(sizes, keeping)} takes {in_words(needed[device])} on {device}, "
        f"and {in_words(room[device] or 0)} are free{_in_a_row(ways)}"
    )


def check_disk(
    sizes: Sequence[LayerSize],
    keeping: Keeping,
    folder: Path,
    disk: Callable[[Path], int | None] | None = None,
) -> None:
    """Refuse to write more to a folder than there is room for.

    Parameters
    ----------
    sizes : sequence of LayerSize
        The layers that will run.
    keeping : Keeping
        What is to be kept of them.
    folder : Path
        Where; it may not be there yet.
    disk : callable, optional
        Gives the bytes that are left where a folder lies; `free_disk` when left out.

    Raises
    ------
    OSError
        If it would exceed what is free, with the arguments that would make it fit.
    """
    free = (disk or free_disk)(folder)
    needed = _on_disk(sizes, keeping)
    if free is None or needed <= free:
        return

    def fits(layers: Sequence[LayerSize], other: Keeping) -> bool:
        return _on_disk(layers, other) <= free

    raise OSError(
        errno.ENOSPC,
        f"spool: {_what(sizes, keeping)} take {in_words(needed)}, and {in_words(free)} are free "
        f"on that disk{_in_a_row([*_ways_out(sizes, keeping, fits)])}",
        str(folder),
    )


def free_disk(folder: Path) -> int | None:
    """Bytes that can still be written to a folder.

    Parameters
    ----------
    folder : Path
        Which; where it is not there yet, the one that it will lie in.

    Returns
    -------
    int or None
        None where nobody tells.
    """
    whole = folder.expanduser().absolute()
    there = next((each for each in (whole, *whole.parents) if each.exists()), whole)
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def _on_disk(sizes: Sequence[LayerSize], keeping: Keeping) -> int:
    return sum(needed_memory(sizes, keeping).values())


def _what(sizes: Sequence[LayerSize], keeping: Keeping) -> str:
    count = sum(layer.size(keeping) > 0 for layer in sizes)
    tokens = max(map(_num_tokens, sizes))
    return f"the queries and keys of {count} layers for {tokens:,} tokens"


def _num_tokens(layer: LayerSize) -> int:
    return sum(max(pair) for pair in layer.lengths)


def _in_a_row(ways: Sequence[str]) -> str:
    if not ways:
        return ""
    *some, last = ways
    return f"; {', '.join(some)}{' or ' if some else ''}{last} would fit"


def _ways_out(
    sizes: Sequence[LayerSize],
    keeping: Keeping,
    fits: Callable[[Sequence[LayerSize], Keeping], bool],
) -> Iterator[str]:
    """Arguments that would make it fit, each tried."""
    # The same range as float32, in half the bytes.
    half = replace(keeping, dtype=torch.bfloat16)
    halves = fits(sizes, half)
    if halves:
        yield 'dtype="bfloat16"'
    moved = replace(keeping, device=torch.device("cpu"))
    if fits(sizes, moved):
        # Then some of it was to lie elsewhere.
        yield 'device="cpu"'
    numbers = sorted(
        {each.number for each in sizes if each.number is not None and each.size(keeping)}
    )
    some = _most(numbers, lambda layers: fits(sizes, _with_layers(keeping, layers)))
    if some:
        yield _words(_with_layers(keeping, some))
    elif not halves:
        some = _most(numbers, lambda layers: fits(sizes, _with_layers(half, layers)))
        if some:
            yield f'{_words(_with_layers(half, some))} with dtype="bfloat16"'
    length = _longest(sizes, keeping, fits)
    if length:
        yield length


def _most(numbers: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """As many of the numbers, from the first on, as fit."""
    for stop in range(len(numbers) - 1, 0, -1):
        if fits(numbers[:stop]):
            return numbers[:stop]
    return ()


def _with_layers(keeping: Keeping, layers: Sequence[int]) -> Keeping:
    heads = keeping.heads
    if isinstance(heads, Mapping):
        heads = {layer: heads[layer] for layer in layers if layer in heads}
    return replace(keeping, layers=tuple(layers), heads=heads)


def _words(keeping: Keeping) -> str:
    layers = list(keeping.layers or ())
    if isinstance(keeping.heads, Mapping) and set(keeping.heads) == set(layers):
        return f"heads={ {layer: list(heads) for layer, heads in keeping.heads.items()} }"
    contiguous = layers == list(range(layers[0], layers[0] + len(layers)))
    if not contiguous or len(layers) < 3:
        return f"layers={layers}"
    ends = f"{layers[0]}, {layers[-1] + 1}" if layers[0] else f"{layers[-1] + 1}"
    return f"layers=range({ends})"


def _longest(
    sizes: Sequence[LayerSize],
    keeping: Keeping,
    fits: Callable[[Sequence[LayerSize], Keeping], bool],
) -> str | None:
    """How long a text might be: the same text, cut everywhere alike."""
    longest = max(map(_num_tokens, sizes))

    def cut(length: int) -> list[LayerSize]:
        return [
            replace(
                layer,
                lengths=tuple(
                    (queries * length // longest, keys * length // longest)
                    for queries, keys in layer.lengths
                ),
            )
            for layer in sizes
        ]

    shortest, most = 0, longest
    while shortest < most:
        middle = (shortest + most + 1) // 2
        if fits(cut(middle), keeping):
            shortest = middle
        else:
            most = middle - 1
    if not shortest:
        return None
    pairs = {pair for layer in sizes for pair in layer.lengths}
    if len(pairs) == 1 and len(set(next(iter(pairs)))) == 1:
        return f"a text of up to {shortest:,} tokens"
    return f"{100 * shortest // longest}% of the text"
