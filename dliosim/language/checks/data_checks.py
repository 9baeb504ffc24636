"""Checks of what loops read: several data sets (E201, E211), and the copies of `stage` verbs (E211)."""

from __future__ import annotations

from collections.abc import Mapping

from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import Settings
from dliosim.model import JoinedDataset, Loop, Stage, Verb
from dliosim.model.epoch_size import moves_samples
from dliosim.model.verbs import flatten_verbs, loops_after, names_read
from dliosim.readable import count


def check_joined(settings: Settings, loop: Loop, dataset: JoinedDataset, nouns: Mapping[str, Settings]) -> None:
    """Report E211 for settings and data sets that do not work together, and E201 for a mixture that has no samples."""
    mixed, access, shuffle = bool(dataset.sources.weights), loop.access, loop.shuffle
    refused = (
        ("columns", loop.columns is not None, "columns", "they are of one table", "leave it out"),
        (
            "through",
            access.through == "library",
            "through library",
            "a library reads one data set",
            "use `through direct`",
        ),
        ("api", access.is_mpi, f"api {access.api}", "ranks open files of one data set together", "use `api posix`"),
        ("shard", loop.shard == "by file", "shard by file", "files belong to one data set", "use `shard by sample`"),
        (
            "shuffle",
            shuffle.files == "within shard" or (mixed and shuffle.samples.startswith("within")),
            "shuffle … within …",
            "a rank has no share of each data set" if mixed else "files of one data set are not those of another",
            "use `shuffle samples globally`",
        ),
    )
    for head, is_asked, phrase, why, hint in refused:
        if is_asked:
            message = f"`{phrase}` does not work where `{loop.name}` reads several data sets"
            settings.report("E211", message, hint, (head, why), ("read", count(len(dataset.joined), "data set")))
    if mixed:
        _check_quotas(settings, loop, dataset, nouns)
        return
    first = dataset.joined[0]
    for other in dataset.joined[1:]:
        if other.samples != first.samples:
            settings.report(
                "E211",
                f"`{first.name}` has {count(first.samples, 'sample')}, and `{other.name}` {other.samples}",
                f"write `samples {first.samples}` in `dataset {other.name}`, or give weights: `{first.name} 50 %, …`",
                ("read", "a step reads sample i of each"),
                _sample_labels(nouns[first.name], f"{first.samples} here"),
                _sample_labels(nouns[other.name], f"{other.samples} here"),
            )


def _check_quotas(settings: Settings, loop: Loop, dataset: JoinedDataset, nouns: Mapping[str, Settings]) -> None:
    """Report E201 if a data set has fewer samples than an exact share needs."""
    if dataset.samples:
        return
    quotas = dataset.sources.quotas
    for one, quota in zip(dataset.joined, quotas, strict=True):
        if one.samples < quota:
            settings.report(
                "E201",
                f"`{one.name}` has too few samples: `{loop.name}` would have zero steps",
                "use more samples, rounder weights, or `until all end`",
                ("read", f"{quota} of {sum(quotas)} samples are of `{one.name}`"),
                _sample_labels(nouns[one.name], count(one.samples, "sample")),
            )


def _sample_labels(data: Settings, text: str) -> list[Label]:
    return data.labels("from files" if data.find_line("from files") is not None else "samples", text)


def check_stages(verbs: tuple[Verb, ...], settings: Mapping[int, Settings]) -> None:
    """Report E211 for loops that cannot read copies of the nodes; `settings` are those of verbs, by id."""
    for verb, _ in flatten_verbs(verbs):
        if isinstance(verb, Stage) and verb.copy != "off":
            for loop in loops_after(verb, verbs):
                _check_reads(verb, settings[id(verb)], loop, settings[id(loop)])


def _check_reads(verb: Stage, stage: Settings, loop: Loop, settings: Settings) -> None:
    own = stage.block.header["NAME"].span
    nodes = settings.context.scope.job.nodes
    if len(names_read(loop)) > 1:
        settings.report(
            "E211",
            f"`{loop.name}` reads several data sets, and copies are read by loops of one",
            f"leave out `stage {verb.dataset}`, or give it `copy off`",
            ("read", "reads them together"),
            [Label(own, "copies one of them")],
        )
    if loop.access.is_mpi and loop.access.communicator not in ("node", 1) and nodes > 1:
        settings.report(
            "E211",
            f"ranks of {nodes} nodes cannot open the copies of `{verb.dataset}` together",
            "use `communicator node`, or `api posix`",
            ("api", "ranks open a file together"),
            [Label(own, "each node reads a file of its own")],
        )
    if verb.copy == "in the background" and loop.cold_within is not None:
        settings.report(
            "E211",
            f"`{loop.name}` drops its page cache before each epoch, while nodes still copy `{verb.dataset}`",
            "use `copy before`",
            ("caches", "each epoch must read from storage"),
            [Label(own, "the copy's own reads fill the page cache")],
        )
    if verb.holds == "own share" and moves_samples(loop):
        settings.report(
            "E211",
            f"`{loop.name}` shuffles `{verb.dataset}` over all nodes in each epoch, so none has a share of its own",
            "use `holds all`; or `shuffle samples within shard`, or `once`",
            ("shuffle", "a node reads other samples in each epoch"),
            [Label(own, "each node would copy what it reads in the first one")],
        )
