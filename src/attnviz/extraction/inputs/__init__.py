"""What a caller gives, as a batch that a model takes."""
