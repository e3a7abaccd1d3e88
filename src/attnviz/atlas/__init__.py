"""The atlas: a view of the statistics of all heads of a model over a corpus."""
