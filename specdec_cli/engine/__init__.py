"""The only place that imports mlx and mlx_lm's models: ids in, Rounds out. Law: knows no text."""
