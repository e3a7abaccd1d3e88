"""Encoder

BERT reads two sentences as one pair. The view can show attention within either sentence, or from
one to the other.
"""

import attnviz as av

view = av.show_head_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    ("The cat sat on the mat.", "A kitten lay on a rug."),
    layer=5,
    token="kitten",
)
