"""Creation of records from arrays that a caller passes: weights, or queries and keys."""
