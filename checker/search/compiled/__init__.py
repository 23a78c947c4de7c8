"""Compiled searches: the extra `coordlab[fast]` (numpy and numba).

Importing them takes a second, and compiling them half a minute, once. So nothing here is imported before
it pays: see `checker.search.choice`.
"""
