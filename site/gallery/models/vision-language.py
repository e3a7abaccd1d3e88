"""Vision-language

A tiny LLaVA reads a picture of two shapes and continues "the red". One head of its language
model finds the patches of that colour.
"""

import numpy as np

import attnviz as av

model, processor = av.demos.load("vision-language")
image, text = av.demos.example("vision-language")["inputs"]
record = av.extract(model, (image, text), processor=processor, generate=1)

# The head with the most weight on red patches, 4 x 4 pixels each.
colors = np.asarray(image).astype(int)
red = (colors[..., 0] > 150) & (colors[..., 1:].max(-1) < 120)
patches = red.reshape(8, 4, 8, 4).any(axis=(1, 3)).ravel()
query = record.stacks["self"].query_tokens.predictions[0].query
share = np.stack(record.to_numpy("self"))[:, :, query, :64][..., patches].sum(-1)
layer, head = (int(number) for number in np.unravel_index(share.argmax(), share.shape))

view = av.show_head_view(record, layer=layer, heads=[head], prediction=0)
