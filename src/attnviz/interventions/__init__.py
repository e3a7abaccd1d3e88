"""A model runs again with its attention changed, and what that does to its answer."""
