"""The job file: its models, how it is read, and what to say about mistakes in it.

Knows no storage but the file itself; nothing here finds weights or lists an input.
"""
