"""Distributed batch labeling of people images with Meta's Sapiens models, on Ray.

`labelset.open_labels` reads a labeled corpus back, `labeler.Labeler` tries a model without Ray, and
`driver.run.run_job` runs a whole job. Nothing of them is imported here, so that reading labels
stays light. Loggers are named after modules; who embeds the package decides where they write.
"""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
