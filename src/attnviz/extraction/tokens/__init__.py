"""The tokens that a record shows for the queries and keys of captured attention."""
