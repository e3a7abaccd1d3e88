"""Widgets: traits and validation here, drawing in ``js/src/views`` under the same names."""
