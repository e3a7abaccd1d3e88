"""One forward of a model, with its attention watched."""
