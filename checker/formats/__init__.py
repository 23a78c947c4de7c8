"""Histories of other tools: read as columns, by content, and written (docs/foreign-histories.md)."""

from checker.formats.edn import Keyword
from checker.formats.from_history import operations_of
from checker.formats.reading import read_operations
from checker.formats.to_history import history_of
from checker.formats.writing import write_operations

__all__ = ["Keyword", "history_of", "operations_of", "read_operations", "write_operations"]
