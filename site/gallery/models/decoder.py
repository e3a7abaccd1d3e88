"""Decoder

A tiny GPT-2 continues a text. Each query attends only to itself and to tokens before it. The
slider stands at the first word that the model wrote: head 0 of layer 1 attends to "street", which
is the answer.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
view = av.show_head_view(
    model,
    "the animal did not cross the street because it was too wide so the",
    tokenizer=tokenizer,
    generate=4,
    layer=1,
    heads=[0],
    prediction=0,
)
