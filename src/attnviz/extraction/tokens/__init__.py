"""Names of the tokens that are queries and keys."""
