"""`specdec serve`: one loaded pair for many conversations and many clients."""
