"""Reading labels back: tables as pyarrow datasets, arrays lazily by row, one sample by key.

Needs neither ray nor torch. Only what commits name is read (I3); a job that is still running can be
read at any time and shows its committed shards.
"""

from sapiens_batch.labelset.arrays import LabelArray
from sapiens_batch.labelset.labels import LabelSet, open_labels
from sapiens_batch.labelset.quarantine import Quarantined, quarantined
from sapiens_batch.labelset.sample import SampleLabels

__all__ = [
    "LabelArray",
    "LabelSet",
    "Quarantined",
    "SampleLabels",
    "open_labels",
    "quarantined",
]
