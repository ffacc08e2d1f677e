"""Hidden states of a network, on request. Law: what nobody asked for is not kept, and costs nothing.

Letters: T tokens of a pass, D hidden size.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.engine.intercept import intercept
from specdec_cli.errors import NotAvailable

Hidden = Mapping[str, mx.array]
"""Path of a module -> its output [T, D], lazy."""


class HiddenStates:
    """Keeps what the named modules of one network returned in its last pass, whoever made the pass."""

    def __init__(self, network: nn.Module, name: str) -> None:
        """`name` is the model's, for messages."""
        self._network, self._name = network, name
        self._watched: set[str] = set()
        self._outputs: dict[str, mx.array] = {}

    def expose(self, paths: Iterable[str]) -> None:
        """From now on keep the outputs of the modules at `paths`, such as `model.layers.3` or `model.norm`.

        Raises: NotAvailable for a path at which the network has no module.
        """
        modules = dict(self._network.named_modules())
        for path in paths:
            if path in self._watched:
                continue
            if path not in modules:
                near = difflib.get_close_matches(path, modules, 3, 0.0)
                raise NotAvailable(f"{self._name} has no module {path}", f"the nearest: {', '.join(near)}")
            intercept(modules[path], self._keeper(path))
            self._watched.add(path)

    def take(self) -> Hidden:
        """The outputs of the last pass, each [T, D]; empty where nothing is exposed. They are kept no longer."""
        taken, self._outputs = self._outputs, {}
        return taken

    def _keeper(self, path: str) -> Any:
        def keep(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = original(module, *args, **kwargs)
            # Some layers return their states too; the first value is the stream of activations [1, T, D].
            self._outputs[path] = (output[0] if isinstance(output, tuple) else output)[0]
            return output

        return keep
