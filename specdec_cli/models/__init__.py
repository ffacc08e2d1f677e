"""A model's files, before any weight is read.

Transformers, which mlx_lm imports too, finds these settings when it is first imported: it reads them only then.
So does mlx its BLAS.
"""

import os
import resource

from specdec_cli.system import blas

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
blas.load()


def _import_within(most: int) -> None:
    """mlx_lm sets the limit of open files when it is imported: where that may not be raised, to what there may be."""
    set_limit = resource.setrlimit
    resource.setrlimit = lambda kind, limits: set_limit(kind, (min(limits[0], most), most))
    try:
        import mlx_lm.utils  # noqa: F401
    finally:
        resource.setrlimit = set_limit


if 0 <= (_most := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) < 4096:
    _import_within(_most)
