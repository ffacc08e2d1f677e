"""Exact rollback of every kind of cache."""
