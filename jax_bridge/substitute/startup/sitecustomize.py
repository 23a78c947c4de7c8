"""Executed by every Python at its start, before the program, if this folder is on its path.

Costs next to nothing in programs without jaxlib, and works without coordlab being installed where the
program runs: the folder that holds our package is on the path during one import only.
"""

# ruff: noqa: PTH100, PTH120 - importing pathlib would slow down every Python
from __future__ import annotations

import os
import sys


def _install_hook() -> None:
    socket_path = os.environ.get("COORDLAB_SUBSTITUTE_SOCKET")
    # Older Pythons have no jaxlib that we know, and cannot read our code.
    if not socket_path or sys.version_info < (3, 11):
        return
    root = os.path.abspath(__file__)
    for _ in range(4):  # startup, substitute, jax_bridge, root
        root = os.path.dirname(root)
    sys.path.insert(0, root)
    try:
        from jax_bridge.substitute.hook import install
    finally:
        sys.path.remove(root)
    install(socket_path)


def _execute_the_next() -> None:
    """The file of this name that Python would have executed without us, if there is one.

    It lies behind this one on the path. Those before it are executed already: `coordlab record` has one.
    """
    from importlib.machinery import PathFinder

    here = os.path.realpath(os.path.dirname(__file__))
    entries = [os.path.realpath(entry or ".") for entry in sys.path]
    behind = entries[entries.index(here) + 1 :] if here in entries else entries
    spec = PathFinder.find_spec(__name__, [entry for entry in behind if entry != here])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


_install_hook()
_execute_the_next()
