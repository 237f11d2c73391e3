"""Tests of the sources package."""
