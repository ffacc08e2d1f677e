"""specdec: speculative decoding you can see. Importing it imports nothing heavy."""

__version__ = "0.1.0"
