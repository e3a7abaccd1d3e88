"""How each demo model is built and trained: one file a model, and the loop that they share."""
