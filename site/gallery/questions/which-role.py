"""What does each head do?

Roles of heads, found over sixty texts, in the model view of one of them. Below each head stands
its role, where the evidence is enough for one.
"""

import attnviz as av

model, tokenizer = av.demos.load("decoder")
texts = av.demos.sentences()
statistics = av.head_statistics(model, texts, tokenizer=tokenizer)
view = av.show_model_view(model, texts[0], tokenizer=tokenizer, roles=statistics, order="role")
