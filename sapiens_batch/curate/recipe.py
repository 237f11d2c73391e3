"""The recipe of a selection: one model for YAML, the command line and Python.

Carrying it out is left to `select`. A recipe, the labels and the versions of the libraries decide a
selection completely; the seed is part of the recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from sapiens_batch.spec.mistakes import refusal
from sapiens_batch.spec.section import Section
from sapiens_batch.spec.yaml_file import read_yaml


class NearDuplicates(Section):
    """Which samples count as the same picture."""

    similarity: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Cosine similarity of embeddings from which two samples are near-duplicates."
    )


class Balance(Section):
    """An even sample over the kinds of picture that a corpus has."""

    clusters: Annotated[int, Field(ge=2)] = Field(
        description="Number of k-means clusters of the embeddings."
    )
    samples: Annotated[int, Field(ge=1)] = Field(
        description="Samples in all, shared evenly among clusters as far as they have them."
    )


class Recipe(Section):
    """How to select samples."""

    where: str = Field(
        default="status = 'ok'",
        description="SQL condition on `samples`: the columns of `images`, and derived ones.",
    )
    near_duplicates: NearDuplicates | None = Field(
        default=None, description="Keep one sample of each group of near-duplicates."
    )
    balance: Balance | None = Field(
        default=None, description="Take a sample that is balanced over clusters of embeddings."
    )
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Take a random sample of at most so many."
    )
    column: str = Field(default="embedding", description="Column of the embeddings.")
    seed: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Decides clusters and random samples."
    )

    @property
    def needs_embeddings(self) -> bool:
        """Whether a search index is needed."""
        return self.near_duplicates is not None or self.balance is not None


def parse_recipe(values: Any, origin: str = "recipe") -> Recipe:
    """Validate a recipe given as plain values.

    Raises:
        SpecError: A field breaks a rule; the message lists every fault.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise refusal(error, Recipe, origin) from error


def load_recipe(path: Path) -> Recipe:
    """Read a recipe from a YAML file.

    Raises:
        SpecError: The file is missing or no recipe.
    """
    values = read_yaml(path, "recipe")
    return parse_recipe({} if values is None else values, origin=f"recipe {path}")
