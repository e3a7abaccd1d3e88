"""Head atlas

What every head does over many texts: its role, with the evidence for it, its mean weight by
offset, and edges in their text. A head has a role only if its score exceeds a baseline
significantly.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
texts = av.demos.sentences()
view = av.show_atlas_view(model, texts, tokenizer=tokenizer)
