"""Data sets for tests of formats of arrays and lines."""

from __future__ import annotations

from dliosim.model import Dataset, Distribution, Layout, Shape, constant

VARYING = Distribution("uniform", (2.0, 400.0))


def described(
    form: str,
    size: int | Distribution,
    *,
    each: bool = False,
    shape: Shape | None = None,
    **rest: object,
) -> Dataset:
    """Nine samples of a size, in one file or (`each`) a file for each; nothing else that is not said."""
    layout = Layout("file per sample", 9) if each else Layout("shared file", 1)
    sizes = constant(float(size)) if isinstance(size, int) else size
    return Dataset("d", 7, 9, sizes, layout, "d", format=form, shape=shape, **rest)  # type: ignore[arg-type]


def shaped(form: str, extents: tuple[int, ...], element: str, **rest: object) -> Dataset:
    """Data sets of samples of one shape."""
    shape = Shape(extents, element)
    return described(form, shape.size, shape=shape, **rest)  # type: ignore[arg-type]
