"""Tests of what the repository promises about itself."""
