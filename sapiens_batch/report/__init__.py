"""The quality card of a job: what it labeled, how well by its own scores, and what stands out.

Numbers come from the committed tables, receipts and a sample of the pictures. Drawing is left to
`sheets`. Needs neither ray nor torch.
"""

from sapiens_batch.report.card import Report, make_report, write_report

__all__ = ["Report", "make_report", "write_report"]
