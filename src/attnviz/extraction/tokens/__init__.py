"""Modules that find the tokens, with their texts, for the queries and keys of a record."""
