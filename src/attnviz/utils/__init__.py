"""Helpers that know nothing of attention: arguments, files, progress, threads, the host."""
