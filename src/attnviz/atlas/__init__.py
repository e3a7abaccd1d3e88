"""The atlas: a view of all heads of a model, with their statistics over a corpus."""
