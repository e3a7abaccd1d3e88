"""Two texts, two models or two checkpoints side by side, and what differs between them."""
