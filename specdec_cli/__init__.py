"""specdec: speculative decoding you can see. Imports nothing heavy; `specdec_cli.session.session` is the Python entry."""

__version__ = "0.1.0"
