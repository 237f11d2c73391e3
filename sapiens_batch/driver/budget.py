"""Whether a job is going so wrong that it should stop: a pure decision over its counts."""

from __future__ import annotations

from sapiens_batch.protocol.documents import Counts
from sapiens_batch.spec.job import ErrorsSpec

MIN_SAMPLES = 100
"""The share of quarantined samples says little before so many; the end of the job settles it."""


def over_budget(counts: Counts, budget: ErrorsSpec, *, complete: bool) -> bool:
    """Whether more samples are quarantined than the job file allows.

    Args:
        counts: What became of the samples so far.
        budget: The `errors` section.
        complete: Whether these are all samples of the job.
    """
    if budget.max_quarantined is not None and counts.quarantined > budget.max_quarantined:
        return True
    if not complete and counts.samples < MIN_SAMPLES:
        return False
    return counts.quarantined > budget.max_quarantined_fraction * counts.samples
