"""Tests of reading labels back."""
