"""Answers what a live view asks, in small binary replies."""
