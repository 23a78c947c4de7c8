"""Values of the key-value store as JSON: bytes are text where they can be, else base64."""

from __future__ import annotations

import base64


def value_fields(value: bytes) -> dict[str, str]:
    """`{"text": ...}` for UTF-8, `{"base64": ...}` for anything else."""
    try:
        return {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
