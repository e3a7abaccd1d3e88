"""Which head copies?

A text that repeats itself, and the model view with all heads ordered by their induction score:
the share of the weight on the token after the last occurrence of the query's token. Head 0 of
layer 1 comes first, far before all others.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
words = "mary drink john river table kitchen animal street"
view = av.show_model_view(
    model, f"{words} {words}", tokenizer=tokenizer, order="induction", layer=1, heads=[0]
)
