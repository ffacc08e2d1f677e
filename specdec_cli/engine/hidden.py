"""Hidden states of a network, on request. What nobody asked for is not kept and costs nothing.

Letters: T tokens of a pass, D hidden size.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from specdec_cli.engine.hooks import Handler, hook, hooked
from specdec_cli.engine.output_head import OutputHead, find_output_head
from specdec_cli.errors import NotAvailable, Refused

Hidden = Mapping[str, mx.array]
"""Path of a module, READ or LAST -> hidden states [T, D], lazy."""

READ = "what the head reads"
LAST = "output of the last layer"


class HiddenStates:
    """Keeps the outputs of the named modules of one network during its last pass, by any conversation."""

    def __init__(self, network: nn.Module, name: str) -> None:
        """`name` is the model's, for messages."""
        self._network, self._name = network, name
        self._watched: set[str] = set()
        self._outputs: dict[str, mx.array] = {}
        self._output_head: OutputHead | None = None

    @property
    def output_head(self) -> OutputHead:
        """From hidden states to logits; found and proven at the first call. Raises: Refused."""
        if self._output_head is None:
            self._output_head = find_output_head(self._network, self._name)
            self.take()  # the search made passes of its own
        return self._output_head

    def expose(self, paths: Iterable[str]) -> None:
        """From now on keep the outputs of the modules at `paths`, such as `model.layers.3` or `model.norm`.

        READ is what the head reads, LAST the output of the last layer; norm and head over it are proven to give the
        logits.

        Raises: NotAvailable for a path at which the network has no module; Refused where READ or LAST is not found.
        """
        for path in self._unwatched(paths):
            hook(*self._watching(path))
            self._watched.add(path)

    @contextmanager
    def exposed(self, paths: Iterable[str]) -> Iterator[None]:
        """As `expose`, inside the context only. Nothing else may begin to watch the network meanwhile."""
        new = self._unwatched(paths)
        watching = [self._watching(path) for path in new]
        with ExitStack() as stack:
            for watched in watching:
                stack.enter_context(hooked(*watched))
            self._watched.update(new)
            stack.callback(self.take)
            stack.callback(self._watched.difference_update, new)
            yield

    def take(self) -> Hidden:
        """The outputs of the last pass, each [T, D]; empty where nothing is exposed. They are kept no longer."""
        taken, self._outputs = self._outputs, {}
        return taken

    def _unwatched(self, paths: Iterable[str]) -> list[str]:
        return [path for path in dict.fromkeys(paths) if path not in self._watched]

    def _watching(self, path: str) -> tuple[nn.Module, Handler, str]:
        """(module, what keeps its output or input, method). Raises: as `expose`."""
        modules = dict(self._network.named_modules())
        if path == READ:
            return self.output_head.head_module, self._keep_input, self.output_head.method
        if path == LAST:
            return modules[self._last_layer()], self._keeper(LAST), "__call__"
        if path in modules:
            return modules[path], self._keeper(path), "__call__"
        near = difflib.get_close_matches(path, modules, 3, 0.0)
        raise NotAvailable(f"{self._name} has no module {path}", f"the nearest: {', '.join(near)}")

    def _last_layer(self) -> str:
        if self.output_head.last_layer is None:
            raise Refused(
                f"{self._name}: its head {self.output_head.head} reads more than a norm of the last layer's output",
                "a head that reads that output cannot draft for it; use a draft model or --drafter ngram",
            )
        return self.output_head.last_layer

    def _keep_input(self, module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._outputs[READ] = args[0][0]
        return original(module, *args, **kwargs)

    def _keeper(self, key: str) -> Any:
        def keep(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = original(module, *args, **kwargs)
            # Some layers return their states too; the first value is the stream of activations [1, T, D].
            self._outputs[key] = (output[0] if isinstance(output, tuple) else output)[0]
            return output

        return keep
