"""What workers do: read and prepare in tasks, label and store in actors.

Decides nothing about the job as a whole; that is left to `driver`.
"""
