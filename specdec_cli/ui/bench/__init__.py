"""How a bench looks."""
