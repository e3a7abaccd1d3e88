"""Capture of the attention in one forward of a model."""
