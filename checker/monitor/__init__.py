"""Checks a history while it happens: `Monitor`.

>>> from checker.specs import Register
>>> monitor = Monitor(Register())
>>> write = monitor.invoke(0, "write", 3)
>>> read = monitor.invoke(1, "read")
>>> monitor.ok(read, 3)
>>> monitor.check().word
'valid so far'
>>> monitor.ok(write)
>>> late = monitor.invoke(1, "read")
>>> monitor.ok(late)
>>> monitor.check().word
'invalid'
"""

from checker.monitor.monitor import Monitor, MonitorVerdict, ValidSoFar

__all__ = ["Monitor", "MonitorVerdict", "ValidSoFar"]
