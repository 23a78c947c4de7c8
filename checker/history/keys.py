"""Keys of the coordination service's store.

Source: service-semantics.md, section 7, measured at jaxlib 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

from functools import lru_cache

_CACHED_MAX = 4096


@lru_cache(_CACHED_MAX)
def normalised(key: str) -> str:
    """The key as the store knows it: no empty parts, and nothing from a NUL on."""
    return "/".join(part for part in key.partition("\0")[0].split("/") if part)


def is_under(key: str, directory: str) -> bool:
    """Whether a normalised key is in a normalised directory. The root has none."""
    return key.startswith(f"{directory}/")
