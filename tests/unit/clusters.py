"""Functions that make random clusters of points and measure how well a plot separates them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def clusters(
    per_cluster: int, *, count: int = 4, dimensions: int = 16, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return ``count * per_cluster`` points around distant centres, and each point's cluster."""
    generator = np.random.default_rng(seed)
    # The centres are orthogonal, so that clusters are separated by angle and by distance.
    centres = np.linalg.qr(generator.normal(size=(dimensions, count)))[0].T * 20
    groups = np.repeat(np.arange(count), per_cluster)
    points = centres[groups] + generator.normal(size=(len(groups), dimensions))
    return points.astype(np.float32), groups


def purity(coordinates: NDArray[np.float32], groups: NDArray[np.int64]) -> float:
    """Return the share of points whose nearest other point has the same cluster in `groups`."""
    distances = ((coordinates[:, None].astype(float) - coordinates[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return float((groups[distances.argmin(axis=1)] == groups).mean())
