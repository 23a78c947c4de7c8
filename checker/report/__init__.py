"""Reports: a history and its verdict as a page, a picture, text, or a trace.

    history, verdict --of_operations, of_history--> Page (plain data) --html, svg, text, perfetto--> str

>>> report_of(operations, verdict, spec).save("report.html")  # doctest: +SKIP
"""

from checker.report.of_history import report_of_history
from checker.report.of_operations import report_of
from checker.report.report import FORMATS, Report

__all__ = ["FORMATS", "Report", "report_of", "report_of_history"]
