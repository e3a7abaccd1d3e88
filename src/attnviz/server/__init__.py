"""Servers that answer the requests of live views in the browser with small replies."""
