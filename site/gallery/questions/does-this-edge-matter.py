"""Does this edge matter?

One weight is cut, the model runs again, and the view shows the attention of this run. In a
notebook a button below the view does the same. Here the answer turns from "street" to another
word: this edge matters for it.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
edge = av.Knockout(queries=-1, keys="street", layers=1, heads=0)
cut = av.intervene(model, text, edge, tokenizer=tokenizer, answer=("street", "animal"))
print(cut.effect)
view = av.show_head_view(cut, layer=1, heads=[0], token=-1)
