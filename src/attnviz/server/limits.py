"""How much is sent at once."""

from __future__ import annotations

__all__ = ["MAX_REPLY_BYTES"]

# Databricks ends a widget message at 5 MB, others slow down long before: a megabyte crosses in
# some 40 ms and leaves room for others between.
MAX_REPLY_BYTES = 1_000_000
