"""Records in files and folders."""
