"""Hypothesis strategies for data sets, loops, jobs and checkpoints: small, uneven, every rule."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from dliosim.model import (
    Access,
    Checkpoint,
    Dataset,
    Distribution,
    Job,
    JoinedDataset,
    Layout,
    Loop,
    Part,
    Shuffle,
    Sources,
    Writers,
    constant,
)
from dliosim.model.joined import join_datasets

seeds = st.integers(0, 2**32)
rank_counts = st.integers(1, 13)
jobs = st.builds(Job, rank_counts)

varying_sizes = st.one_of(
    st.builds(Distribution, st.just("normal"), st.just((500.0, 200.0)), st.just(1.0), st.just(900.0)),
    st.builds(Distribution, st.just("lognormal"), st.just((300.0, 150.0))),
    st.builds(Distribution, st.just("uniform"), st.just((1.0, 4000.0))),
    st.builds(Distribution, st.just("exponential"), st.just((700.0,))),
    st.builds(Distribution, st.just("gamma"), st.just((200.0, 300.0))),
    st.builds(Distribution, st.just("poisson"), st.just((3.0,))),
)
sizes = st.one_of(st.builds(constant, st.integers(1, 5000).map(float)), varying_sizes)


@st.composite
def datasets(draw: st.DrawFn, sizes: st.SearchStrategy[Distribution] = sizes) -> Dataset:
    samples = draw(st.integers(1, 400))
    kind = draw(st.sampled_from(["file per sample", "files", "file per rank", "shared file"]))
    if kind == "file per sample":
        layout = Layout("file per sample", samples)
    elif kind == "shared file":
        layout = Layout("shared file", 1)
    else:
        files = draw(st.integers(1, samples + 3))
        layout = Layout("file per rank" if kind == "file per rank" else "files", files, draw(st.integers(1, 3)))
    return Dataset(
        name="d",
        seed=draw(seeds),
        samples=samples,
        size=draw(sizes),
        layout=layout,
        path="d",
        header=draw(st.sampled_from([0, 1, 100, 4096])),
        align=draw(st.sampled_from([1, 1, 7, 512, 4096])),
        sizes=draw(st.sampled_from(["by sample", "by sample", "by file"])),
    )


@st.composite
def joined_datasets(draw: st.DrawFn, mixed: bool) -> JoinedDataset:
    """Two or three data sets as one loop reads them: a sample of each, or a mixture by weights."""
    each = [replace(one, name=f"d{number}", path=f"d{number}") for number, one in enumerate(draw(_several))]
    if not mixed:
        each = [_with_samples(one, each[0].samples) for one in each]
    names = tuple(one.name for one in each)
    weights = draw(st.sampled_from(_WEIGHTS[len(each)])) if mixed else ()
    return join_datasets(Sources(names, weights, mixed and draw(st.booleans())), each)


_several = st.lists(datasets(), min_size=2, max_size=3)
_WEIGHTS: dict[int, list[tuple[int, ...]]] = {
    2: [(500, 500), (700, 300), (20, 980), (125, 875)],
    3: [(400, 400, 200), (900, 50, 50), (600, 395, 5)],
}


def _with_samples(dataset: Dataset, samples: int) -> Dataset:
    files = samples if dataset.layout.kind == "file per sample" else dataset.layout.files
    return replace(dataset, samples=samples, layout=replace(dataset.layout, files=files))


shuffles = st.builds(
    Shuffle,
    samples=st.sampled_from(["off", "globally", "within shard", "within buffer"]),
    samples_once=st.booleans(),
    buffer=st.integers(1, 60),
    files=st.sampled_from(["off", "globally", "within shard"]),
    files_once=st.booleans(),
)
loops = st.builds(
    Loop,
    kind=st.just("train"),
    name=st.just("l"),
    dataset=st.just("d"),
    access=st.just(Access()),
    batch=st.integers(1, 9),
    shard=st.sampled_from(["by sample", "by block", "by file", "off"]),
    shuffle=shuffles,
    last_batch=st.sampled_from(["drop", "pad", "keep"]),
    epochs=st.just(3),
    steps=st.one_of(st.none(), st.integers(0, 30)),
    shift=st.integers(0, 20),
)

writers = st.one_of(
    st.just(Writers("file per rank")),
    st.just(Writers("shared file")),
    st.builds(Writers, st.just("one per"), st.integers(1, 6)),
    st.builds(Writers, st.just("rank"), st.just(0)),
)
checkpoints = st.builds(
    Checkpoint,
    name=st.just("c"),
    seed=seeds,
    parts=st.lists(
        st.builds(Part, st.sampled_from(["w", "o"]), st.integers(1, 500), st.sampled_from(["total", "per rank"])),
        min_size=1,
        max_size=4,
    ).map(tuple),
    writers=writers,
    access=st.just(Access()),
    path=st.just("c"),
)
