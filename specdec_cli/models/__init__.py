"""A model's files, before any weight is read."""
