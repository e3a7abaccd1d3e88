"""Head view

Lines lead from every query to the keys that it attends to. Head 1 of layer 3 of MiniLM, a small
BERT, finds the noun that "it" stands for: 0.68 of its weight lies on "animal". Point at a token,
or click another head.
"""

import attnviz as av

view = av.show_head_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    "The animal didn't cross the street because it was too tired.",
    layer=3,
    heads=[1, 7, 9],
    token="it",
)
