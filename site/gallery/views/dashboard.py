"""Dashboard

Model view, head view and matrix view of one record, linked: a head that is clicked in one is
shown by all.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
view = av.show_dashboard(model, text, tokenizer=tokenizer, layer=1, heads=[0])
