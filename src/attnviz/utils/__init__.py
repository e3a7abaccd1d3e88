"""Helpers that do not depend on attention: arguments, files, progress, threads, the host."""
