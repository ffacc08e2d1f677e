"""A command a folder: its options, its work and its screen."""
