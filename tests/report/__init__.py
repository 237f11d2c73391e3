"""Tests of sapiens_batch.report."""
