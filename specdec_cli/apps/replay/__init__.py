"""The rounds of an earlier run."""
