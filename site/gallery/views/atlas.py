"""Head atlas

What every head does over many texts: its role, with the evidence for it, its mean weight by
offset, and edges in their text. A head has a role only where its score exceeds a baseline with
confidence.
"""

import numpy as np

import attnviz as av
from attnviz.demos.datasets.sentences import antecedent_sentence

model, tokenizer = av.demos.load("decoder")
generator = np.random.default_rng(0)
texts = [" ".join(antecedent_sentence(generator, held_out=True).words) for _ in range(60)]
view = av.show_head_atlas(model, texts, tokenizer=tokenizer)
