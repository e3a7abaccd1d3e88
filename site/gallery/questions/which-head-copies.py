"""Which is the induction head?

A text that repeats itself, and the model view with all heads ordered by their induction score:
the share of the weight on tokens that follow an earlier occurrence of the query's token. Head 0 of
layer 1 comes first, far before all others. The score shows where it looks, not that it copies.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
words = "mary drink john river table kitchen animal street"
view = av.show_model_view(
    model, f"{words} {words}", tokenizer=tokenizer, order="induction", layer=1, heads=[0]
)
