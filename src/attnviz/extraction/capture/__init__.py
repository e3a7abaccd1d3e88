"""Modules that capture or change the attention of a model while the model runs."""
