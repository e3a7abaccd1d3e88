"""Neuron view

How one weight comes about: the query's vector, each key's vector, their products, the sum of
these (the logit), and the softmax.
"""

import attnviz as av

view = av.show_neuron_view(
    "sentence-transformers/all-MiniLM-L6-v2",
    "The animal didn't cross the street because it was too tired.",
    layer=3,
    heads=1,
    token="it",
    key="animal",
)
