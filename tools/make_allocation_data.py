"""Rebuild what `paperworks.allocation` embeds: the concave hulls of the measured training speed-ups."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paperworks.allocation import data
from paperworks.core.atomic import write_text

Points = list[list[float]]


def concave_hull(gpus: NDArray[np.float64], speedup: NDArray[np.float64]) -> Points:
    """Return the corners of the least concave majorant from (0, 0) to the highest point, to six decimals."""
    hull = [(0.0, 0.0)]
    top = int(np.argmax(speedup)) + 1
    for x, y in zip(gpus[:top], speedup[:top], strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) <= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((float(x), float(y)))
    return [[x, round(y, 6)] for x, y in hull]


def render() -> str:
    hulls = {app: concave_hull(*measured) for app, measured in data.load_pollux().items()}
    rows = ",\n".join(f"  {json.dumps(app)}: {json.dumps(points)}" for app, points in hulls.items())
    return "{\n" + rows + "\n}\n"


if __name__ == "__main__":
    write_text(Path(data.__file__).with_name("speedups.json"), render())
