"""The maps of weights that a view draws over an image."""

from __future__ import annotations

from attnviz.views.position import PositionedView
from attnviz.views.trait_types import Choice


class ImageMaps(PositionedView):
    """Base class of views that draw weights over an image of the record.

    Attributes
    ----------
    maps : {"chosen", "layers", "heads", "words"}
        Maps over the image. ``"chosen"`` draws the chosen heads. ``"layers"`` draws them in each
        layer, and ``"heads"`` each head of the layer, as small maps in rows. ``"words"`` draws a
        map of each token of the answer. Without an answer, it draws one of each word that reads
        patches or, in diffusion models, that patches read. A click on a small map chooses its
        layer, head or word.
    """

    maps = Choice(["chosen", "layers", "heads", "words"], "chosen").tag(
        sync=True, label="Maps", labels={"chosen": "chosen heads", "heads": "all heads"}
    )
