"""Helpers without a subject of their own: arguments, the host that the code runs in."""
