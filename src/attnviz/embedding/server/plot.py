"""The plot of a head: what is asked of it, and how its points travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.placement import Placing
from attnviz.embedding.projection import Method, ProjectionSettings

__all__ = [
    "TOP_CODE",
    "Plot",
    "coded",
    "dimensions_of",
    "method_of",
    "placing_of",
    "settings_of",
]

#: The highest code of a coordinate or a norm.
TOP_CODE = 65_535

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Plot:
    """Where a head's points lie.

    Attributes
    ----------
    coordinates : ndarray
        float32, (points, dimensions).
    explained : list of float, or None
        Shares of variance along the axes; None of what is no PCA.
    factor : float
        What queries were divided by and keys multiplied by.
    problem : str or None
        Why there is nothing to be seen, or to be trusted.
    """

    coordinates: Floats
    explained: list[float] | None
    factor: float
    problem: str | None

    def header(self) -> dict[str, Any]:
        """All but the coordinates, fit for JSON."""
        count, dimensions = self.coordinates.shape
        return {
            "dimensions": dimensions,
            "count": count,
            "explained": self.explained,
            "factor": self.factor,
            "problem": self.problem,
        }


def coded(coordinates: Floats) -> tuple[list[float], float, NDArray[np.uint16]]:
    """Write coordinates as codes over a square, or a cube.

    Parameters
    ----------
    coordinates : ndarray
        float32, (points, dimensions).

    Returns
    -------
    low : list of float
        The corner that code 0 stands for.
    size : float
        Length of each side; 0 where all points are one or some are not finite.
    codes : ndarray
        uint16, (points, dimensions): 0 to 65,535 over ``low`` to ``low + size``. Shorter sides are
        in the middle.

    Examples
    --------
    >>> coded(np.array([[0.0, 5.0], [4.0, 7.0]], np.float32))[:2]
    ([0.0, 4.0], 4.0)
    """
    dimensions = coordinates.shape[1]
    if not len(coordinates) or not np.isfinite(coordinates).all():
        return [0.0] * dimensions, 0.0, np.zeros(coordinates.shape, np.uint16)
    values = coordinates.astype(np.float64)
    least, most = values.min(axis=0), values.max(axis=0)
    size = float((most - least).max())
    low = (least + most - size) / 2
    shares = (values - low) / size if size > 0 else np.full(values.shape, 0.5)
    codes = np.rint(np.clip(shares, 0.0, 1.0) * TOP_CODE).astype(np.uint16)
    return low.tolist(), size, codes


def placing_of(arguments: Mapping[str, Any]) -> Placing:
    """Read how points are to be placed.

    Parameters
    ----------
    arguments : mapping
        ``scaling``, ``translate`` and ``lift``: a request's ``way``, or a view's state.

    Returns
    -------
    Placing

    Raises
    ------
    ValueError
        If the scaling is unknown.
    """
    scaling = arguments["scaling"]
    if scaling not in ("norms", "search", "none"):
        raise ValueError(f'scaling={scaling!r} must be "norms", "search" or "none"')
    return Placing(
        scaling=scaling, translate=bool(arguments["translate"]), lift=bool(arguments["lift"])
    )


def method_of(arguments: Mapping[str, Any]) -> Method:
    """Read how points are to be projected.

    Parameters
    ----------
    arguments : mapping
        With ``method``.

    Returns
    -------
    {"pca", "tsne", "umap"}

    Raises
    ------
    ValueError
        If it is none of them.
    """
    method: Method = arguments["method"]
    if method not in get_args(Method):
        raise ValueError(f'method={method!r} must be "pca", "tsne" or "umap"')
    return method


def dimensions_of(arguments: Mapping[str, Any]) -> int:
    """Read how many dimensions a plot has.

    Parameters
    ----------
    arguments : mapping
        With ``dimensions``.

    Returns
    -------
    {2, 3}

    Raises
    ------
    ValueError
        If it is another number.
    """
    dimensions = int(arguments["dimensions"])
    if dimensions not in (2, 3):
        raise ValueError(f"dimensions={dimensions} must be 2 or 3")
    return dimensions


def settings_of(arguments: Mapping[str, Any]) -> ProjectionSettings:
    """Read how a plot is projected.

    Parameters
    ----------
    arguments : mapping
        Of a request for a projection.

    Returns
    -------
    ProjectionSettings
        The same of two requests that differ in nothing that counts for their method.

    Raises
    ------
    TypeError, ValueError
        If one of them makes no sense.
    """
    method = method_of(arguments)
    plain = ProjectionSettings(method)
    return ProjectionSettings(
        method,
        dimensions=dimensions_of(arguments),
        perplexity=int(arguments["perplexity"]) if method == "tsne" else plain.perplexity,
        neighbors=int(arguments["neighbors"]) if method == "umap" else plain.neighbors,
        seed=int(arguments["seed"]),
        # Lifted points tell products by their distances, which a direction alone does not have.
        metric="euclidean" if placing_of(arguments["way"]).lift else "cosine",
    )
