"""Tests of sapiens_batch.sheets."""
