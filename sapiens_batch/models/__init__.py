"""Encoders and heads in torch, and where their weights come from.

Knows nothing of jobs, images or labels: normalised tensors in, raw maps out.
"""
