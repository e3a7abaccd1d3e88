"""What was captured of one example, and the weights of any block of it, computed when asked for."""
