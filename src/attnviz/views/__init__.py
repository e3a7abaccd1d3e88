"""Widgets of the views, with their traits. ``js/src/views`` has the code that draws them."""
