"""Model view

Every head of every layer at once: 6 layers of 12 heads. Vertical stripes are heads that attend to
one token, often `[CLS]` or `[SEP]`; diagonals are heads that attend to a neighbour. Click a head
to see it in detail.
"""

import attnviz as av

view = av.show_model_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    "The animal didn't cross the street because it was too tired.",
)
