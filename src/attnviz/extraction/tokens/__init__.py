"""What each query and key is called."""
