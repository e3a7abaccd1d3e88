"""Traits of the views with a heat map of weights: queries are rows, and keys are columns."""

from __future__ import annotations

from attnviz.views.token_windows import TokenWindows
from attnviz.views.trait_types import Choice


class HeatMap(TokenWindows):
    """Base class of views that show weights as a heat map.

    Attributes
    ----------
    color_scale : {"linear", "log"}
        Scale of the colours of the heat map.
    pooled : {"mean", "max"}
        Value of a cell that covers several weights: their mean, or the largest. Cells cover several
        weights if a text is too long to show each weight.
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that the heat map shows: [start,
        stop], with stop excluded. None shows all.
    """

    color_scale = Choice(["linear", "log"], "linear").tag(
        sync=True, label="Colour", labels={"log": "logarithm"}
    )
    pooled = Choice(["mean", "max"], "mean").tag(
        sync=True, label="Cells show", labels={"max": "maximum"}
    )
