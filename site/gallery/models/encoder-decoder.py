"""Encoder-decoder

A tiny BART turns dates into ISO form. Its cross attention leads from each character that it
writes to the characters that it reads: the month's digits come from the month's name.
"""

import attnviz as av

model, tokenizer = av.demos.load("encoder-decoder")
record = av.extract(model, "Sunday, 17 November 2019", tokenizer=tokenizer, generate=12)
cross = record.stacks["cross"]
month = cross.query_tokens.predictions[5]
strongest = {
    (layer, head): cross.weights(layer=layer, head=head)[month.query].max()
    for layer in cross.layers
    for head in range(4)
}
layer, head = max(strongest, key=strongest.get)
view = av.show_head_view(record, stack="cross", layer=layer, heads=[head], prediction=5)
