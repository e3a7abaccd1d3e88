"""Server that answers the requests of live views in the browser with small binary replies."""
