"""The version of this package; it is also in pyproject.toml."""

__version__ = "0.2.0"
