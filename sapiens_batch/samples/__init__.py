"""A tiny corpus of free photos for the first job and for tests; see CREDITS.md."""
