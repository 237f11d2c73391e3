"""Tests of the stored formats."""
