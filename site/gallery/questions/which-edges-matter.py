"""Which edges matter?

Integrated gradients share out the answer among all weights. Blue edges speak for "street" rather
than "animal", orange ones against it.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
numbers = av.attribute(
    model,
    text,
    method="integrated gradients",
    answer=("street", "animal"),
    tokenizer=tokenizer,
)
view = av.show_head_view(numbers, layer=1, heads=[0], token=-1)
