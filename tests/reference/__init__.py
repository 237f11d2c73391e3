"""Tests against reference tensors of the transformers port and the original code."""
