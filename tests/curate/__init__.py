"""Curation: recipes, SQL tables, near-duplicates, balance, selection files."""
