"""A trace as coloured text, a page or a picture."""
