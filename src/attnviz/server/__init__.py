"""Server for the requests of live views, with small binary replies."""
