"""Narrow the weights of an ONNX model to float16: `python scripts/narrow_onnx.py IN OUT`.

Halves a file for bundling. The graph widens each weight again, so it still computes in float32.
Needs the package `onnx`, which only the tests need besides.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

# Smaller constants are shapes, scales and anchors: nothing to gain, and exact values matter.
_MIN_ELEMENTS = 256


def narrow(model: onnx.ModelProto) -> onnx.ModelProto:
    """Store large float32 weights as float16, each behind a cast to float32."""
    graph = model.graph
    casts = []
    for weight in graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.dtype != np.float32 or values.size < _MIN_ELEMENTS:
            continue
        name = weight.name
        weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}/float16"))
        casts.append(
            onnx.helper.make_node("Cast", [f"{name}/float16"], [name], to=onnx.TensorProto.FLOAT)
        )
    for position, cast in enumerate(casts):
        graph.node.insert(position, cast)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(narrow(onnx.load(sys.argv[1])), Path(sys.argv[2]))
