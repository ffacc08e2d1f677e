"""One prompt, answered."""
