"""Display tokens for the queries and keys of captured attention."""
