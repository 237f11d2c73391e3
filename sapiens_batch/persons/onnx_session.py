"""Open an ONNX graph for the CPU: one thread, because workers are as many as cores.

What the graph's inputs and outputs mean is left to the detectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapiens_batch.errors import DependencyError, SpecError

if TYPE_CHECKING:
    import onnxruntime


def open_session(model: bytes, name: str) -> onnxruntime.InferenceSession:
    """Make a session.

    Args:
        model: The ONNX file's bytes.
        name: What the job file calls the model, for messages.

    Raises:
        DependencyError: onnxruntime is not installed.
        SpecError: The bytes are no ONNX graph that onnxruntime can run.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise DependencyError(
            f"persons.detector.model: {name} needs onnxruntime, which is not installed; install "
            "sapiens-batch[detect]"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except refusals() as error:
        raise SpecError(
            f"persons.detector.model: {name} cannot be opened by onnxruntime ({error}); export it "
            "as one file, weights included, for an opset that this version of onnxruntime knows"
        ) from error


def refusals() -> tuple[type[Exception], ...]:
    """What onnxruntime raises for a graph or an input that it cannot run; they share no base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf,
        state.NoModel, state.NoSuchFile, state.NotImplemented, state.RuntimeException,
    )  # fmt: skip
