"""Search: cells, builds, queries, sheets."""
