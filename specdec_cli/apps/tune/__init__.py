"""A draft trained on the user's own text, and kept only if it pays on text that it never saw."""
