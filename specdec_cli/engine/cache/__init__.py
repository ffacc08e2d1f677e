"""Rollback of every kind of cache."""
