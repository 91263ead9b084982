"""The HTML report: one file that fetches nothing."""

from opcheck.report.html.page import rendered, write

__all__ = ["rendered", "write"]
