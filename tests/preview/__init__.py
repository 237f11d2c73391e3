"""Tests of sapiens_batch.preview."""
