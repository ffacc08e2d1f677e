"""A loaded pair, and conversations with it."""
