"""Bit operations that Python has no operator for, as machine instructions."""

from __future__ import annotations

from typing import Any

import numba as nb
from llvmlite import ir
from numba.extending import intrinsic


@intrinsic
def lowest_bit(typing_context: Any, mask: Any) -> Any:
    """Position of the lowest set bit of an int64; the mask must not be 0."""
    del typing_context, mask

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return nb.int64(nb.int64), generate
