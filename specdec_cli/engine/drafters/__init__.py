"""Who drafts."""
