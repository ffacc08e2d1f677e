"""What a step reads of a network: of a mixture's experts those that its token is sent to, of some tables a row.

Letters: E experts of a layer, k of them a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from specdec_cli.engine.hidden import hooked

# A table of vectors for each token and layer (Gemma 3n and 4), nearly half of the smallest of these models.
ROWS_ALONE = "embed_tokens_per_layer"


def read_shares(network: nn.Module, feed_one: Callable[[], object]) -> dict[str, float]:
    """[path] = k / E of each matrix [E, …] of experts, as the pass over one token that `feed_one` builds asks for them;
    0 of tables that are read by rows alone.

    k is counted, because every family's configuration calls it otherwise. Matrices that the pass does not come through
    are left out, and so count as dense.
    """
    found = {p: m for p, m in network.named_modules() if isinstance(m, SwitchLinear | QuantizedSwitchLinear)}
    asked: dict[int, int] = {}

    def count(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked[id(module)] = (args[1] if len(args) > 1 else kwargs["indices"]).size
        return original(module, *args, **kwargs)

    with ExitStack() as counting:
        for module in found.values():
            counting.enter_context(hooked(module, count))
        if found:
            feed_one()
    tables = (path for path, _ in network.named_modules() if path.endswith(ROWS_ALONE))
    return {
        **{path: min(asked[id(m)] / m.num_experts, 1.0) for path, m in found.items() if id(m) in asked},
        **dict.fromkeys(tables, 0.0),
    }


def experts_a_token(network: nn.Module, shares: Mapping[str, float]) -> int:
    """k, the most of any layer, by these `shares`; 1 without experts."""
    modules = dict(network.named_modules())
    return max((round(share * modules[path].num_experts) for path, share in shares.items() if share), default=1)


def bytes_read(network: nn.Module, shares: Mapping[str, float]) -> dict[str, float]:
    """[path of a parameter] = bytes of it that a step reads, where what is not read whole has these `shares`."""
    parameters = tree_flatten(network.parameters())
    return {name: value.nbytes * shares.get(name.rpartition(".")[0], 1.0) for name, value in parameters}
