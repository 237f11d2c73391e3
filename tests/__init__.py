"""Tests of sapiens_batch; the folders mirror the package."""
