"""Storage of records in files and folders."""
