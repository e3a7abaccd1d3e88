"""Vision

A tiny ViT names the one shape in a picture. Its `[CLS]` token attends to the patches where the
shape lies: the image shows the row of the query that is chosen.
"""

import attnviz as av

model, processor = av.demos.load("vision")
image = av.demos.example("vision")["inputs"]
view = av.show_matrix_view(model, image, processor=processor, layer=2, heads=[1], token=0)
