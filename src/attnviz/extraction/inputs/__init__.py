"""Modules that convert the inputs of `attnviz.extract` into the arguments of one forward."""
