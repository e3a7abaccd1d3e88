"""Records from data that attnviz did not extract: weights, or queries and keys."""
