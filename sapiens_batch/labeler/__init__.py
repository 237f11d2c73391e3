"""Encoders and heads on one device: views or images in, labels out. Without ray.

This is what a GPU actor runs, and the way to try a model in a notebook.
"""

from sapiens_batch.labeler.checkpoints import describe, require_acceptance, resolve
from sapiens_batch.labeler.image_labels import ImageLabels
from sapiens_batch.labeler.labeler import Labeler

__all__ = ["ImageLabels", "Labeler", "describe", "require_acceptance", "resolve"]
