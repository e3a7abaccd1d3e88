"""Answers what an embedding view asks."""
