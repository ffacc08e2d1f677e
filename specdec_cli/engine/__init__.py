"""The only place that imports mlx and mlx_lm's models: ids in, Rounds out. It knows no text."""

import specdec_cli.models  # noqa: F401 - its settings come before mlx and mlx_lm
