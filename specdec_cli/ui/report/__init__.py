"""How a report of `specdec doctor` looks."""
