"""Helpers that do not depend on attention.

They are about arguments, files, progress, threads, and the program in which the code runs (a
Jupyter kernel, marimo or a script).
"""
