"""The terms that released weights come with, and how a person says yes to them.

Facts for a labeling tool, not legal advice. Weights are never bundled. Where the acceptance is
asked for and recorded is left to `labeler.checkpoints`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from sapiens_batch.errors import SpecError

ACCEPT_FIELD: Final = "accept_licences"
ACCEPT_VARIABLE: Final = "SAPIENS_BATCH_ACCEPT_LICENCES"

Ask = Literal["job_file", "argument", "option"]
"""Where a person can say yes: in a job file, in a call, or on the command line."""

_WAYS: Final[dict[Ask, str]] = {
    "job_file": f"put `{ACCEPT_FIELD}: [{{}}]` into the job file",
    "argument": f'pass `{ACCEPT_FIELD}=["{{}}"]`',
    "option": "add `--accept-licence {}`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """Terms of some weights.

    Attributes:
        key: What a person writes to accept them.
        name: Their name.
        url: Where the full text is.
        summary: What to know before using the weights, one sentence each.
    """

    key: str
    name: str
    url: str
    summary: tuple[str, ...]

    @property
    def terms(self) -> str:
        """The summary as lines to show, one a sentence."""
        return "\n".join(f"  - {sentence}" for sentence in self.summary)


@dataclass(frozen=True, slots=True)
class LicenceRecord:
    """That somebody accepted the terms of some weights.

    Attributes:
        name: The licence's name.
        url: Where its full text is; empty for weights without terms.
        accepted_by: The field or variable that said so; empty for weights without terms.
    """

    name: str
    url: str
    accepted_by: str


SAPIENS2: Final = Licence(
    key="sapiens2",
    name="Sapiens2 License",
    url="https://github.com/facebookresearch/sapiens2/blob/main/LICENSE.md",
    summary=(
        "Forbidden: surveillance; biometric processing; identifying people; deepfakes and "
        "misleading content; inferring health or other sensitive data without consent; "
        "pornographic or defamatory use; unlicensed professional practice; military, weapons and "
        "critical-infrastructure use.",
        "You must obey privacy, biometric-information and trade-control law.",
        "Weights and fine-tunes may be passed on only under the same agreement; publications must "
        "acknowledge Sapiens.",
        "As is, without warranty; Meta may audit use and require deletion.",
    ),
)
CC_BY_NC_4: Final = Licence(
    key="cc-by-nc-4.0",
    name="CC BY-NC 4.0",
    url="https://creativecommons.org/licenses/by-nc/4.0/",
    summary=(
        "Forbidden: commercial use.",
        "You must name the authors (Meta, Sapiens) where you pass on the weights or what is made "
        "from them.",
        "As is, without warranty.",
    ),
)
LICENCES: Final = (SAPIENS2, CC_BY_NC_4)
NO_LICENCE_NAME: Final = "none (random weights)"

_BY_ID: Final = (
    (re.compile(r"facebook/sapiens2-"), SAPIENS2),
    (re.compile(r"(facebook|noahcao)/sapiens-"), CC_BY_NC_4),
)


def licence_of_id(checkpoint: str) -> Licence | None:
    """Terms of a released hub repository, None for other names."""
    return next((terms for pattern, terms in _BY_ID if pattern.match(checkpoint)), None)


def licence_named(name: str) -> Licence | None:
    """Terms by their name, None for weights without terms."""
    return next((terms for terms in LICENCES if terms.name == name), None)


def accepted_by(
    licence: Licence,
    checkpoint: str,
    accepted: Collection[str],
    *,
    ask: Ask = "job_file",
    hint: str = "",
) -> str:
    """Where a licence was accepted: the job's field, or the environment variable.

    Args:
        licence: The terms.
        checkpoint: The weights that come with them, for the message.
        accepted: Keys of the licences that were accepted.
        ask: Where the caller lets a person accept, for the message.
        hint: What else to say of the checkpoint.

    Raises:
        SpecError: It was accepted nowhere; shows the terms and how to accept them.
    """
    if licence.key in accepted:
        return ACCEPT_FIELD
    if licence.key in re.split(r"[\s,]+", os.environ.get(ACCEPT_VARIABLE, "")):
        return ACCEPT_VARIABLE
    known = [one.key for one in LICENCES]
    strange = ", ".join(repr(key) for key in accepted if key not in known)
    note = f" ({strange} is no licence; there are {', '.join(known)})" if strange else ""
    raise SpecError(
        f"{checkpoint} comes under the {licence.name} ({licence.url}):\n{licence.terms}\n"
        f"Read it. To accept it {_WAYS[ask].format(licence.key)} or set "
        f"{ACCEPT_VARIABLE}={licence.key}{note}{hint}"
    )
