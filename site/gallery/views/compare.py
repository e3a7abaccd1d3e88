"""Compare view

Two sentences that differ in one word. The grid shows how far each head's attention differs, and
the picture below what moved in one head.
"""

import attnviz as av

she = "The doctor asked the nurse a question because she was tired."
he = she.replace(" she ", " he ")
view = av.show_compare_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    he,
    she,
    names=("he", "she"),
    token="he→she",
)
