"""Plain and drafted decoding of one prompt, side by side."""
