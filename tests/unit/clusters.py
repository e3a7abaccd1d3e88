"""Points whose neighbourhoods are known because they were drawn so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["clusters", "purity"]


def clusters(
    each: int, *, count: int = 4, dimensions: int = 16, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points around far centres, one group after another, and which group each is of."""
    generator = np.random.default_rng(seed)
    # At right angles to each other, so that they are apart by angle and by distance.
    centres = np.linalg.qr(generator.normal(size=(dimensions, count)))[0].T * 20
    groups = np.repeat(np.arange(count), each)
    points = centres[groups] + generator.normal(size=(len(groups), dimensions))
    return points.astype(np.float32), groups


def purity(coordinates: NDArray[np.float32], groups: NDArray[np.int64]) -> float:
    """Share of points whose nearest point on the plot is of their own group."""
    apart = ((coordinates[:, None].astype(float) - coordinates[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float((groups[apart.argmin(axis=1)] == groups).mean())
