"""Conversion of a caller's inputs into a batch for a model."""
