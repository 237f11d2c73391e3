"""Looking at labels: contact sheets of one job, and where two jobs differ.

How a sample is drawn is left to `sheets`, reading to `labelset`, the photos to `sources.lookup`.
Only committed labels are shown. Needs neither ray nor torch.
"""

from sapiens_batch.preview.preview import (
    Choice,
    Order,
    Preview,
    PreviewOptions,
    Selection,
    choose,
    write_preview,
)

__all__ = [
    "Choice",
    "Order",
    "Preview",
    "PreviewOptions",
    "Selection",
    "choose",
    "write_preview",
]
