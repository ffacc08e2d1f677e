"""Several machines share one target: how they are named, started and ended, and what a further one does."""
