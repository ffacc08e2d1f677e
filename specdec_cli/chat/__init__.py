"""A conversation in the terminal, without its looks."""
