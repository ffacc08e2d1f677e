"""Who drafts the next round, and how many tokens."""
