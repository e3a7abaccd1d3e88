"""Which heads matter?

Each head is switched off in turn, and the view orders heads by what that does to the answer: the
difference of the logits of "street" and "animal".
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
effects = av.head_effects(model, text, answer=("street", "animal"), tokenizer=tokenizer)
view = av.show_model_view(
    model, text, tokenizer=tokenizer, scores={"effect": effects}, order="effect"
)
