"""Histories: the one interface between what records and what checks."""

from checker.history.events import (
    LIVE_PROCESSES,
    NEMESIS,
    SHUTDOWN,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Fault,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Response,
    Start,
)
from checker.history.header import FORMAT_VERSION, Header
from checker.history.history import History
from checker.history.jsonl_reader import HistoryReader, loads, read
from checker.history.jsonl_writer import HistoryWriter, dumps, write
from checker.history.merge import merge
from checker.history.values import value_fields
from checker.history.wellformed import WellFormed

__all__ = [
    "FORMAT_VERSION",
    "LIVE_PROCESSES",
    "NEMESIS",
    "SHUTDOWN",
    "Crash",
    "Enter",
    "Event",
    "Exit",
    "Fail",
    "Fault",
    "Header",
    "History",
    "HistoryReader",
    "HistoryWriter",
    "Info",
    "Invoke",
    "Leave",
    "LiveSet",
    "Ok",
    "Response",
    "Start",
    "WellFormed",
    "dumps",
    "loads",
    "merge",
    "read",
    "value_fields",
    "write",
]
