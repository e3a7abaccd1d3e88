"""Server of the embedding view."""
