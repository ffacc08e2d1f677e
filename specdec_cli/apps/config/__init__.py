"""The settings, shown and changed."""
