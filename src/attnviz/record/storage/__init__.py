"""Saved records: files and folders."""
