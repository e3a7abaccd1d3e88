"""What does each head do?

Roles of heads, found over sixty texts, in the model view of one of them. Below each head stands
its role, where the evidence is enough for one.
"""

import numpy as np

import attnviz as av
from attnviz.demos.datasets.sentences import antecedent_sentence

model, tokenizer = av.demos.load("decoder")
generator = np.random.default_rng(0)
texts = [" ".join(antecedent_sentence(generator, held_out=True).words) for _ in range(60)]
statistics = av.head_statistics(model, texts, tokenizer=tokenizer)
view = av.show_model_view(model, texts[0], tokenizer=tokenizer, roles=statistics, order="role")
