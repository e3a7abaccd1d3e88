"""Many texts of one model, as one object."""
