"""Weights of the detector that works without a network; see README.md and LICENSE beside it."""
