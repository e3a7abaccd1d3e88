"""Attention that attnviz did not extract itself: weights, or queries and keys, from anywhere."""
