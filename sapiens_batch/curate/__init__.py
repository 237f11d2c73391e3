"""Curation: which samples of a labeled corpus to go on with, said as a recipe.

A recipe is a SQL condition, then near-duplicates, then a balanced sample. The selection that it
gives is a file that `run` and `export` accept and that says how it was made.
"""

from sapiens_batch.curate.recipe import Balance, NearDuplicates, Recipe, load_recipe
from sapiens_batch.curate.select import select
from sapiens_batch.curate.selection import Selection, read_selection, save_selection

__all__ = [
    "Balance",
    "NearDuplicates",
    "Recipe",
    "Selection",
    "load_recipe",
    "read_selection",
    "save_selection",
    "select",
]
