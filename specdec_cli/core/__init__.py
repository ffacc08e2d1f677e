"""What every other package speaks of: pure values, and how they are told."""
