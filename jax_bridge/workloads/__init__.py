"""Small real programs that are worth breaking: ordinary scripts, that do not know who looks on.

`catalogue.py` lists them, `checking.py` runs them; `program.py` and `communicators.py` are shared.
"""
