"""Conversion of the inputs that a caller passes into a batch: the arguments of one forward."""
