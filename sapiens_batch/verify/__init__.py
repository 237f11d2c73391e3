"""Check a job from its storage alone, order repairs, and remove what nobody needs.

Needs neither ray nor torch, and no weights. Labeling again is left to the pipeline.
"""

from sapiens_batch.verify.garbage import DEFAULT_GRACE_S, Garbage, collect_garbage, find_garbage
from sapiens_batch.verify.job import check_job
from sapiens_batch.verify.repair import order_repairs
from sapiens_batch.verify.report import Drift, Fault, Finding, Pile, Report

__all__ = [
    "DEFAULT_GRACE_S",
    "Drift",
    "Fault",
    "Finding",
    "Garbage",
    "Pile",
    "Report",
    "check_job",
    "collect_garbage",
    "find_garbage",
    "order_repairs",
]
