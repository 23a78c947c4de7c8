"""The specifications that are shipped, by name.

>>> spec_named("register").name
'register'
"""

from __future__ import annotations

from checker.specification import SetSpecification, Specification
from checker.specs.append_log import AppendLog
from checker.specs.counter import Counter
from checker.specs.kv import Kv
from checker.specs.multi_register import MultiRegister
from checker.specs.mutex import Mutex
from checker.specs.named_barrier import NamedBarrier
from checker.specs.queue import Queue
from checker.specs.register import CasRegister, Register
from checker.specs.service_store import ServiceKey, ServiceStore
from checker.specs.sets import Set
from checker.specs.stack import Stack

__all__ = [
    "SPECS",
    "AppendLog",
    "CasRegister",
    "Counter",
    "Kv",
    "MultiRegister",
    "Mutex",
    "NamedBarrier",
    "Queue",
    "Register",
    "ServiceKey",
    "ServiceStore",
    "Set",
    "Stack",
    "spec_named",
]

SPECS: dict[str, type[Specification | SetSpecification]] = {
    spec.name: spec
    for spec in (
        Register,
        CasRegister,
        MultiRegister,
        Mutex,
        Counter,
        Set,
        Queue,
        Stack,
        AppendLog,
        Kv,
        ServiceKey,
        ServiceStore,
        NamedBarrier,
    )
}
"""Each can be made without arguments."""


def spec_named(name: str) -> Specification | SetSpecification:
    """The specification of a name, as it is by default.

    Raises:
      ValueError: there is none of that name; the message lists those that there are.
    """
    try:
        return SPECS[name]()
    except KeyError:
        names = ", ".join(SPECS)
        raise ValueError(f"no specification is called {name!r}; there are {names}") from None
