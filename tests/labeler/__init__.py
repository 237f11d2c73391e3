"""Tests of the labeler."""
