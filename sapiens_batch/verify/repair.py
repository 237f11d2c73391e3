"""Order what a check found damaged to be labeled again.

Nothing that exists is touched (I2, I6): the next run labels the samples as a later generation of
their shard, which readers prefer. Damage that labeling again cannot mend is handed back.
"""

from __future__ import annotations

from sapiens_batch.protocol import keys
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.orders import RelabelOrder
from sapiens_batch.verify.report import Finding, Report


def order_repairs(manifest: Manifest, report: Report) -> tuple[list[RelabelOrder], list[Finding]]:
    """Order the damaged samples of every shard.

    Args:
        manifest: The job.
        report: What `check_job` found.

    Returns:
        One order for each damaged shard, and the findings that no order can mend.

    Raises:
        StorageError: The store refused.
    """
    by_shard: dict[str, list[Finding]] = {}
    beyond: list[Finding] = []
    for finding in report.findings:
        if finding.shard_id is None:
            beyond.append(finding)
        else:
            by_shard.setdefault(finding.shard_id, []).append(finding)
    orders = [
        manifest.relabel(
            shard_id,
            damaged_samples(findings),
            cause="repair",
            above=max(_generation(finding) for finding in findings),
            message="; ".join(sorted({f"{one.fault} {one.key}" for one in findings})[:10]),
        )
        for shard_id, findings in sorted(by_shard.items())
    ]
    return orders, beyond


def damaged_samples(findings: list[Finding]) -> list[int] | None:
    """Samples that mend the findings of one shard, or None for all."""
    samples: set[int] = set()
    for finding in findings:
        if finding.samples is None:
            return None
        samples.update(range(*finding.samples))
    return sorted(samples)


def _generation(finding: Finding) -> int:
    """The generation that a finding is about: no order up to it mends what is damaged."""
    name = keys.parse(finding.key)
    return 0 if name is None else name.generation
