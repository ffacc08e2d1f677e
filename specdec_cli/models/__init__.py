"""A model's files, before any weight is read.

Transformers, which mlx_lm imports too, finds these settings when it is first imported: it reads them only then.
So does mlx its BLAS.
"""

import os

from specdec_cli import blas

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
blas.load()
