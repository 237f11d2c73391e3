"""The label tasks: one module each, and the table that the rest of the program knows them by.

To add a task, write its module, add its line here, and subclass the conformance suite in the tests.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from sapiens_batch.records import TaskName
from sapiens_batch.tasks.albedo import AlbedoTask
from sapiens_batch.tasks.base import Task
from sapiens_batch.tasks.depth import DepthTask
from sapiens_batch.tasks.embedding import EmbeddingTask
from sapiens_batch.tasks.features import FeaturesTask
from sapiens_batch.tasks.matting import MattingTask
from sapiens_batch.tasks.normal import NormalTask
from sapiens_batch.tasks.pointmap import PointmapTask
from sapiens_batch.tasks.pose import PoseTask
from sapiens_batch.tasks.seg import SegTask

TASKS: Final = MappingProxyType[TaskName, type[Task]](
    {
        "embedding": EmbeddingTask,
        "features": FeaturesTask,
        "pose": PoseTask,
        "seg": SegTask,
        "normal": NormalTask,
        "pointmap": PointmapTask,
        "matting": MattingTask,
        "albedo": AlbedoTask,
        "depth": DepthTask,
    }
)
