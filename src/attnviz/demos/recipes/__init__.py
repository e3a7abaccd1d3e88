"""How the models of `attnviz.demos.checkpoints` are built and trained, and their training loop."""
