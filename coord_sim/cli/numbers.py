"""Numbers on the command line, with limits."""

from __future__ import annotations

import argparse
import ipaddress
import math


def positive_int(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, found {text!r}")
    return value


SECONDS_MAX = 1e9
"""Longer times, some thirty years, are mistakes."""


def positive_seconds(text: str) -> float:
    """A time in seconds, greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"must be a time in seconds above 0 and up to {SECONDS_MAX:g}, found {text!r}"
        )
    return value


def port_number(text: str) -> int:
    """A port, or 0 for a free one."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, found {text!r}")
    return value


def host_and_port(text: str) -> tuple[str, int]:
    """`PORT` on the loopback, or `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", port_number(port)


def is_loopback(host: str) -> bool:
    """Whether an address to bind is out of other machines' reach; of names, only `localhost` is."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def task_count(text: str) -> int:
    """A number of processes."""
    from coord_sim.core.service import TASKS_MAX

    value = positive_int(text)
    if value > TASKS_MAX:
        raise argparse.ArgumentTypeError(f"a job has at most {TASKS_MAX} processes, found {text}")
    return value
