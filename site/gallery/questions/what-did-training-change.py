"""What did training change?

The same model before and after training, on one text. The grid shows which heads changed, and the
picture what one head attends to before and after.
"""

import attnviz as av

untrained, tokenizer = av.demos.checkpoints("decoder", [0])
trained, _ = av.demos.load("decoder")
view = av.show_compare_view(
    (untrained[0], trained),
    av.demos.example("decoder")["inputs"],
    tokenizer=tokenizer,
    names=("before", "after"),
    layer=1,
    heads=[0],
    token=-1,
)
