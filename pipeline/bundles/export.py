"""A model as one ONNX file: any number of uint8 pictures in, probabilities and logits out."""

from pathlib import Path

import numpy as np
import torch

from pipeline.bundles.layout import require_onnx
from pipeline.bundles.read import Model
from pipeline.bundles.scorer import Scorer
from pipeline.core import files
from pipeline.core.errors import FileError

INPUT, OUTPUTS = "images", ("probabilities", "logits")
CLOSE = 1e-4
"""Largest difference of a probability to torch's with which a file is written."""


def export(model: Model, path: Path, pictures: np.ndarray) -> float:
    """Write a model as ONNX and compare what onnxruntime makes of some pictures with what torch does.

    Args:
        model: The model.
        path: The file.
        pictures: (B, size, size, 3) uint8, at least one.

    Returns:
        The largest difference of a probability.

    Raises:
        ConfigError: A package that it needs is not installed.
        FileError: The network cannot be exported, or scores differently there.
    """  # noqa: DOC502  ConfigError comes from `require_onnx`
    require_onnx()
    import onnx
    import onnxscript  # noqa: F401  torch needs it

    scorer = model.scorer.to("cpu")
    example = torch.from_numpy(np.resize(pictures, (2, *pictures.shape[1:])))  # one would be taken for the only number
    try:
        program = torch.onnx.export(
            scorer,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=list(OUTPUTS),
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch", min=1)}},
        )
        assert program is not None
        made = program.model_proto
    except Exception as error:  # each unsupported operation has its own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path.name}: the network cannot be exported ({reason})") from error
    _forget_places(made)
    onnx.checker.check_model(made)
    files.write_bytes(path, made.SerializeToString(deterministic=True))
    difference = compare(path, scorer, pictures)
    if not difference <= CLOSE:
        path.unlink()
        raise FileError(
            f"{path.name}: onnxruntime's probabilities differ from torch's by {difference:.2g}, so it is not written"
        )
    return difference


def compare(path: Path, scorer: Scorer, pictures: np.ndarray) -> float:
    """Return the largest difference between the probabilities of onnxruntime and of torch.

    Args:
        path: The ONNX file.
        scorer: What torch computes.
        pictures: (B, size, size, 3) uint8, at least one; they are given together, and the first one alone.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    differences = []
    for count in (1, len(pictures)):
        (found,) = session.run([OUTPUTS[0]], {INPUT: pictures[:count]})
        with torch.inference_mode():
            wanted = scorer(torch.from_numpy(pictures[:count])).probabilities.numpy()
        differences.append(np.abs(np.asarray(found) - wanted).max())
    return float(max(differences))


def _forget_places(made: "onnx.ModelProto") -> None:  # noqa: F821  # pyright: ignore
    """Take out of a model where in which file on this machine each node was made."""
    for holder in (made.graph, *made.functions):
        for node in holder.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for value in (*made.graph.value_info, *made.graph.input, *made.graph.output, *made.graph.initializer):
        del value.metadata_props[:]
    del made.graph.metadata_props[:]
