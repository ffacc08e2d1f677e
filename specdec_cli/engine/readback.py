"""From the device to the host. Law: the only way that token ids take, once a round."""

from __future__ import annotations

from typing import cast

import mlx.core as mx


def ids(array: mx.array) -> list[int]:
    """The integers of `array` [N]; waits for them. mlx types every nesting that `tolist` may give; one axis has one."""
    return cast(list[int], array.tolist())
