"""Executed by every Python at its start, before the program, if this folder is on its path.

Written by `coordlab record`. Costs next to nothing in programs without jaxlib. The folder that holds our
packages is on the path during imports of ours only, and nothing that the program imports is ours.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - importing pathlib would slow down every Python
from __future__ import annotations

import os
import sys

PACKAGES = ""
"""The folder that holds our packages; if empty, it lies beside this one."""


def _install_hook() -> None:
    # Older Pythons have no jaxlib that we know, and cannot read our code.
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is executed by any of them
        return
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    packages = PACKAGES or os.path.join(folder, "packages")
    sys.path.insert(0, packages)
    try:
        from jax_bridge.recorder.hook import install
    except ImportError as error:
        if sys.stderr is not None:  # `print` would take standard output.
            print(f"coordlab: not recorded: {packages}: {error}", file=sys.stderr)
        return
    finally:
        sys.path.remove(packages)
    install(os.path.join(folder, "parts"))


def _execute_the_next() -> None:
    """The file of this name that Python would have executed without us, if there is one.

    It lies behind this one on the path. Those before it are executed already: `coordlab wrap` has one.
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
