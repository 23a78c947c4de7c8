"""Searches for a legal order of operations."""

from checker.search.check import check_operations

__all__ = ["check_operations"]
