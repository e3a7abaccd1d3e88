"""Formatting of numbers for readers, and conversion of numbers to JSON.

Readers see the typographic minus sign (U+2212).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def format_signed(number: float, spec: str) -> str:
    """Format a number like the function `format`, but with a typographic minus sign.

    >>> format_signed(-15.479, ".4g")
    '−15.48'
    """
    return format(number, spec).replace("-", "−")


def format_small(number: float) -> str:
    """Format a number that may be very small, such as an error, with two significant digits.

    >>> format_small(0.0123), format_small(1.26e-6), format_small(0)
    ('0.012', '1.3e−6', '0')
    """
    digits, exponent, power = f"{float(f'{number:.2g}'):g}".partition("e")
    return f"{digits}e{format_signed(int(power), 'd')}" if exponent else digits


def compare_to_noise(effect: float, noise: float) -> str:
    """Say whether the absolute value of an effect exceeds its noise.

    >>> compare_to_noise(-1.5, 1.26e-6), compare_to_noise(0.0, 0.2)
    ('larger than the noise 1.3e−6', 'no larger than the noise 0.2')
    """
    return f"{'no ' * (abs(effect) <= noise)}larger than the noise {format_small(noise)}"


def describe_noise(effects: Sequence[float], noise: float) -> str:
    """Describe the noise of effects, and how many of the effects do not exceed it.

    Effects that are NaN are ignored.

    >>> describe_noise([-2.0, 0.01, math.nan], 0.02)
    'noise 0.02, which 1 of 2 effects does not exceed'
    >>> describe_noise([-2.0], 0.02), describe_noise([0.01], 0.02)
    ('noise 0.02', 'noise 0.02, which no effect exceeds')
    """
    sizes = [abs(effect) for effect in effects if not math.isnan(effect)]
    below = sum(size <= noise for size in sizes)
    words = f"noise {format_small(noise)}"
    if not below:
        return words
    if below == len(sizes):
        return f"{words}, which no effect exceeds"
    return f"{words}, which {below:,} of {len(sizes):,} effects do{'es' * (below == 1)} not exceed"


def format_with_error(number: float, error: float) -> str:
    """Format a number and its standard error with two decimals, or "<0.01" for a smaller error.

    >>> format_with_error(0.9812, 0.0123), format_with_error(0.9812, 0.0004)
    ('0.98 ± 0.01', '0.98 ± <0.01')
    """
    written = f"{error:.2f}"
    return f"{format_signed(number, '.2f')} ± {'<0.01' if written == '0.00' else written}"


def format_change(before: float, after: float) -> str:
    """Format two numbers with enough decimals to distinguish them, at least one and at most four.

    >>> format_change(8.5431, 8.5312), format_change(17.04, -15.48)
    ('8.54 to 8.53', '17.0 to −15.5')
    """
    differ = (each for each in range(1, 4) if f"{before:.{each}f}" != f"{after:.{each}f}")
    spec = f".{next(differ, 4)}f"
    return f"{format_signed(before, spec)} to {format_signed(after, spec)}"


def finite_lists(arrays: Iterable[NDArray[Any]]) -> list[list[float | None]]:
    """Convert one-dimensional arrays to lists for JSON. NaN and infinite numbers become None."""
    return [
        [number if math.isfinite(number) else None for number in array.tolist()] for array in arrays
    ]
