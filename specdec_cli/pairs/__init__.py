"""Pairs: listed, resolved, checked and pulled."""
