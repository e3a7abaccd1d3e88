"""Matrix view

All weights of one head as a heat map: queries down, keys across. The row of "it" and the column
of "animal" are chosen.
"""

import attnviz as av

view = av.show_matrix_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    "The animal didn't cross the street because it was too tired.",
    layer=3,
    heads=1,
    token="it",
    key="animal",
)
