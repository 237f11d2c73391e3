"""Label quarantined samples again, once what kept them from being labeled is mended.

Meant for reasons that lie outside the sample: a crash, a timeout, too little memory, a fault in
this program. A sample whose bytes are bad stays bad while its shard is the planned one; a repaired
shard is another shard (I4). The order is written down first and carried out by an ordinary run, so
an interrupted retry is finished by `run`. The commits before stay as they are (I2).
"""

from __future__ import annotations

from collections.abc import Collection

from sapiens_batch.driver.open_job import open_job, resolve
from sapiens_batch.driver.progress import Reporter
from sapiens_batch.driver.run import JobSummary, carry_out
from sapiens_batch.labelset.quarantine import check_asked, quarantined
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.stages.view_labeler import LoadLabeler, load_labeler


def retry_job(
    spec: JobSpec,
    reporter: Reporter,
    *,
    reasons: Collection[str],
    sample_keys: Collection[str] | None = None,
    load: LoadLabeler = load_labeler,
) -> JobSummary:
    """Order samples to be labeled again, and run the job.

    Args:
        spec: The job; refused where it is not the one that was run.
        reporter: Where to show progress.
        reasons: As for `order_retry`.
        sample_keys: As for `order_retry`.
        load: Loads the models.

    Raises:
        InputError: Samples are quarantined, but none for these reasons or with these keys.
        SapiensBatchError: The job could not be opened; see `start`.
    """
    context, manifest = open_job(resolve(spec), reporter.message)
    number = order_retry(manifest, reasons=reasons, sample_keys=sample_keys)
    if not number:
        check_asked(manifest, reasons=reasons, keys=sample_keys)
    reporter.message(f"{number} samples are to be labeled again")
    return carry_out(context, manifest, reporter, load=load)


def order_retry(
    manifest: Manifest,
    *,
    reasons: Collection[str],
    sample_keys: Collection[str] | None = None,
) -> int:
    """Order the quarantined samples of a job to be labeled again by the next run.

    Args:
        manifest: The job.
        reasons: Reasons of the samples; a name without its last part (`decode`) means all that
            start with it.
        sample_keys: Only samples with these keys; None for all.

    Returns:
        How many samples were ordered.

    Raises:
        ProtocolError: A commit is damaged.
        StorageError: The store failed.
    """
    wanted: dict[str, set[int]] = {}
    for sample in quarantined(manifest, reasons=reasons, keys=sample_keys):
        wanted.setdefault(sample.shard_id, set()).add(sample.index)
    message = f"retry of {', '.join(sorted(reasons))}"
    for shard_id, samples in wanted.items():
        manifest.relabel(shard_id, samples, cause="retry", message=message)
    return sum(len(samples) for samples in wanted.values())
