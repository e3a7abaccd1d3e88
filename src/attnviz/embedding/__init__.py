"""The joint query-key embedding of a corpus: analysis, requests, page and view."""
