"""Checks of a loop with its data set and the job (E201 to E207, E211, E215, W303, W306)."""

from __future__ import annotations

from collections.abc import Mapping

from dliosim.language.checks import access_checks, checkpoint_checks
from dliosim.language.checks.data_checks import check_joined
from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import Settings
from dliosim.language.syntax.declarations import WITHOUT_DATA
from dliosim.model import Convert, Dataset, JoinedDataset, Loop, epoch_size
from dliosim.readable import count
from dliosim.units import format_bytes


def check_loop(settings: Settings, loop: Loop, dataset: Dataset, nouns: Mapping[str, Settings]) -> None:
    """Report the findings about a loop that reads `dataset`; `nouns` has the settings of the pattern's data sets."""
    before = len(settings.context.found)
    if isinstance(dataset, JoinedDataset):
        check_joined(settings, loop, dataset, nouns)
        if settings.context.has_errors(before):
            return
    access = loop.access
    _check_last_step(settings, loop)
    _check_reading_order(settings, loop)
    _check_cold_epochs(settings, loop)
    for one in dataset.members:
        data = nouns[one.name]
        access_checks.check_collective(settings, loop, one, data)
        _check_columns(settings, loop, one, data)
        if one.format != "raw" or all(other.format == "raw" for other in dataset.members):
            _check_decode(settings, loop, one, data)
        access_checks.check_memory_cache(settings, access, one, data)
        if access.through == "library":
            access_checks.check_library(settings, access, one, data)
        else:
            access_checks.check_alignment(settings, loop, one, data)
    if access.through != "library":
        access_checks.check_engine(settings, access)
        access_checks.check_hints(settings, access)
    access_checks.check_plugin(settings, access)
    data = nouns[dataset.members[0].name]
    access_checks.check_communicator(settings, access, dataset, data)
    before = len(settings.context.found)
    _check_plan_size(settings, loop, dataset, data)
    if len(settings.context.found) == before and (steps := _check_shards(settings, loop, dataset, data)):
        # Requests are one stream, even if it reads the data set several times.
        _check_cadences(settings, loop, steps if loop.arrivals is None else loop.arrivals.requests)
        _check_prefetch(settings, loop, steps)
    access_checks.check_readers(settings, access)


def check_unread_loop(settings: Settings, loop: Loop) -> None:
    """Report the findings about a loop without `read`: E210 for a setting of reading, E003 if its steps do nothing."""
    place = settings.block.place
    read = f"add `{settings.context.example_read()}`"
    others = [line for line in settings.lines if line.head not in WITHOUT_DATA]
    if others:
        message = f"`{others[0].head}` in `{loop.name}`, which reads nothing"
        labels = [Label(line.place, "says how data are read") for line in others]
        settings.report("E210", message, f"{read}, or leave out what says how data are read", labels)
    if loop.compute.per_sample:
        message, why = f"`compute … per sample` in `{loop.name}`, which reads nothing", "a step has no samples"
        settings.report("E210", message, f"{read}, or leave out `per sample`", ("compute", why))
    if not any(settings.find_line(head) for head in ("compute", "checkpoint")):
        label = Label(place, "neither `read` nor `compute` nor `checkpoint`")
        settings.report("E003", f"the steps of `{loop.name}` do nothing", f"{read}, or `compute 10 ms`", [label])
    _check_last_step(settings, loop)
    _check_cadences(settings, loop, loop.steps or 0)


def _check_columns(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report E210 and E113 for `columns` of what is no table, or has fewer."""
    if loop.columns is None:
        return
    if dataset.source:
        hint = 'name those that are read in the data set: `datasets "a", "b"`'
        place = data.labels("from files", "they have columns of their own")
        settings.report("E210", "`columns` of files that are there already", hint, ("columns", "the first ones"), place)
    elif dataset.format != "parquet":
        hint = "leave it out, or write `format parquet` in the data set"
        place = data.labels("format", "has no columns", "the format is raw (the default)")
        settings.report("E210", f"`columns` of format `{dataset.format}`", hint, ("columns", "of a table"), place)
    elif loop.columns > dataset.parts:
        there = count(dataset.parts, "column")
        place = data.labels("columns" if dataset.columns else "datasets", there, f"{there} (the default)")
        label = ("columns", "more than there are")
        settings.report("E113", f"`{loop.name}` reads {loop.columns} columns", f"at most {there}", label, place)


def _check_plan_size(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report E113 for a step or an order of files whose plan does not fit into a rank's memory."""
    rows = epoch_size.rows_of_step(loop, dataset)
    if rows > epoch_size.LARGEST_TABLE:
        labels = settings.labels("batch", f"samples of a rank and step: {loop.batch:_}", "1 sample (the default batch)")
        message = f"a step of `{loop.name}` would have {loop.batch:_} samples"
        if rows > loop.batch:
            labels += settings.labels("transfer", "cuts samples into calls")
            labels += data.labels("chunk", "cuts samples into pieces") + data.labels("datasets", "parts of a sample")
            message = f"a step of `{loop.name}` would take some {rows:_} calls"
        settings.report("E113", message, f"at most {epoch_size.LARGEST_TABLE:_}, on each rank", labels)
    files = epoch_size.files_in_table(loop, dataset, settings.context.scope.job.ranks)
    if files > epoch_size.LARGEST_TABLE:
        settings.report(
            "E113",
            f"`{loop.name}` goes through too many files",
            f"at most {epoch_size.LARGEST_TABLE:_} on each rank",
            ("shard" if loop.shard == "by file" else "shuffle", f"each rank needs a table of {files:_} files"),
            data.layout_labels(f"{dataset.layout.files:_} files"),
        )


def _check_last_step(settings: Settings, loop: Loop) -> None:
    """Report E211 if ranks cannot agree on the step at which they save or end."""
    cadences = [*zip(settings.all_lines("checkpoint"), loop.checkpoints, strict=True)]
    in_step = [line.phrase for line, cadence in cadences if cadence.unit == "steps"]
    timed = [line.phrase for line, cadence in cadences if cadence.unit == "seconds"]
    if loop.sync.kind != "off":
        return
    if timed:
        settings.report(
            "E211",
            f"ranks of `{loop.name}` cannot agree on the step at which they save",
            "use `sync barrier`, or `every N steps` in place of a time",
            [Label(phrase, "each rank looks at its own clock") for phrase in timed],
            ("sync", "nothing lets ranks agree on the step"),
        )
    others = [Label(phrase, "but all ranks save at the same step") for phrase in in_step]
    if loop.access.collective:
        others += settings.labels("api", "but all ranks read each step together")
    if loop.access.scatter:
        others += settings.labels("scatter", "but one rank reads each step for all of its node")
    if loop.seconds is not None and others:
        settings.report(
            "E211",
            f"ranks of `{loop.name}` cannot agree on the last step",
            "use `sync barrier`, or `steps N` in place of `for`",
            ("for", "each rank looks at its own clock"),
            ("sync", "nothing lets ranks agree on the last step"),
            others,
        )


def _check_reading_order(settings: Settings, loop: Loop) -> None:
    """Report E211 for samples that are read in another order, on another rank or earlier than another setting needs."""
    access, requests = loop.access, loop.arrivals is not None
    if access.collective and access.order == "as planned":
        settings.report(
            "E211",
            "`order as planned` does not work with `api mpi-collective`",
            "leave `order` out, or use `api mpi-independent`",
            ("order", "samples are shuffled, or may be"),
            ("api", "but one view reads the batch, and must go forward in the file"),
        )
    ahead = "readers" if settings.find_line("readers") is not None else "prefetch"
    if access.scatter:
        settings.refuse(
            "scatter by node",
            ("scatter", "one rank reads each step for all of its node, in the step itself"),
            (access.collective, "api", "all ranks read each step together", "use `api posix`"),
            (access.readers > 0, ahead, "this reads ahead", f"leave `{ahead}` out"),
            (requests, "requests", "each rank's come when they come", "leave `scatter` out"),
        )
    if requests and access.readers:
        settings.report(
            "E211",
            f"`{ahead}` with `requests`: data would be read before they are asked for",
            f"leave out `{ahead}`",
            (ahead, "this reads ahead"),
            ("requests", "but no request is known before it arrives"),
        )


def _check_decoder(settings: Settings, dataset: Dataset, data: Settings, setting: str, hint: str) -> None:
    """Report E211 for `decode on`, with a `setting`, of what only a library decodes, and W306 if nothing is encoded."""
    if dataset.format == "raw":
        settings.report(
            "W306",
            "`decode on`, and raw samples have nothing to decode",
            "leave it out",
            ("decode", "the bytes are used as they are"),
            data.labels("format", "no encoding", "the format is raw (the default)"),
        )
    if dataset.format == "parquet":
        settings.report(
            "E211",
            f"`decode on` does not work{setting} here: parquet is decoded by its library alone",
            hint,
            ("decode", "a decoder must be run on what is read"),
            data.labels("format", "parts of its files do not say how they are decoded", "found by the files' names"),
        )


def _check_decode(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report E211 if `decode on` cannot work, and W306 if there is nothing to decode."""
    access = loop.access
    if not loop.decode:
        return
    if access.transfer is not None and access.readers > 0 and access.by == "sample":
        settings.report(
            "E211",
            "`decode on` does not work with `readers … by sample` and `transfer`",
            "use `readers … by batch`, or `transfer whole sample`",
            ("decode", "the thread that reads a sample decodes it"),
            ("readers", "but each of these takes calls as they come"),
            ("transfer", "one sample may need several calls"),
        )
    if access.through == "direct" or dataset.format == "raw":
        hint = "use `through library`; or leave `decode` out, to read only"
        _check_decoder(settings, dataset, data, " with `through direct`", hint)


def _check_cold_epochs(settings: Settings, loop: Loop) -> None:
    """Report E211 for `caches cold each epoch` where samples stay in memory, and without epochs."""
    access = loop.access
    is_mapped = access.engine == "mmap" and access.open == "once"
    if loop.cold_within is not None:
        settings.refuse(
            "caches cold each epoch",
            ("caches", "each epoch must read from storage"),
            (access.cache == "memory", "cache", "keeps samples in the memory of the ranks", "use `cache page`"),
            (loop.arrivals is not None, "requests", "are one stream: no epoch begins", "leave `caches` out"),
            (is_mapped, "engine", "pages of a file that stays mapped are not dropped", "add `open each epoch`"),
        )


def _check_shards(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> int:
    """Return the steps of an epoch; 0, and report E201, E203 or E215, if ranks cannot have any."""
    ranks = settings.context.scope.job.ranks
    if loop.shard == "by file" and dataset.layout.files < ranks:
        files = count(dataset.layout.files, "file")
        settings.report(
            "E203",
            f"{ranks - dataset.layout.files} of {ranks} ranks would have no file to read",
            f"use `shard by sample`, or at least {ranks} files",
            ("shard", f"{ranks} ranks"),
            data.layout_labels(files, f"{files} (the default layout)"),
        )
        return 0
    if epoch_size.has_order_dependent_shards(loop, dataset):
        settings.report(
            "E215",
            f"`shard by file` of shuffled files in `{loop.name}`, and these are of different lengths",
            "use `shuffle files within shard`, or `shard by sample` or `by block`",
            ("shuffle", "in another order each rank would have another number of samples"),
            ("shard", "a rank reads whole files"),
            data.labels("from files", "which hold different numbers of samples"),
        )
        return 0
    steps = epoch_size.steps_of_epoch(loop, dataset, ranks)
    if steps:
        return steps
    fewest = epoch_size.shard_bounds(loop, dataset, ranks)[0]
    samples = "from files" if dataset.source else "samples"
    by_sample = loop.shard == "by sample"
    label = f"{loop.batch} per rank and step, and a rank has {count(fewest, 'sample')}"
    if by_sample:
        label = f"{loop.batch} per rank, {loop.batch * ranks} per step"
    largest = dataset.samples // ranks if by_sample else fewest
    settings.report(
        "E201",
        f"the batch is larger than the data: `{loop.name}` would have zero steps",
        f'write `batch {largest} per rank`, or give `-D {loop.name}.batch="{largest} per rank"`; or `last batch keep`'
        if largest
        else "use more samples, or `last batch keep`",
        ("batch", label, f"{label} (the default batch)"),
        data.labels(samples, f"{dataset.samples} samples"),
    )
    return 0


def _check_cadences(settings: Settings, loop: Loop, total: int) -> None:
    """Report E207 for saves and syncs that do not come within the `total` steps of an epoch."""
    checkpoint_checks.check_cadence_length(settings, loop, total)
    if loop.sync.every > total:
        message = f"`{loop.name}` never synchronises: every {loop.sync.every} steps"
        kind = f"allreduce {format_bytes(loop.sync.size)}" if loop.sync.size else loop.sync.kind
        phrase = f"{kind} every {count(total, 'step')}"
        hint = f'write `sync {phrase}`, or give `-D {loop.name}.sync="{phrase}"`'
        settings.report("E207", message, hint, ("sync", f"the last step is {total}"))


def _check_prefetch(settings: Settings, loop: Loop, steps: int) -> None:
    if loop.access.prefetch > steps and loop.arrivals is None and settings.find_line("prefetch") is not None:
        settings.report(
            "W303",
            f"`{loop.name}` prefetches more than an epoch",
            f"at most `prefetch {count(steps, 'batch', 'batches')}` has an effect",
            ("prefetch", f"an epoch has {count(steps, 'step')}"),
        )


def check_convert(
    settings: Settings, verb: Convert, nouns: Mapping[str, Settings], source: Dataset, dataset: Dataset
) -> None:
    """Report the findings about a conversion of `source` to `dataset`; `nouns` has the settings of both."""
    header = settings.block.header
    read, written = header["converted"].span, header["NAME"].span
    if source.name == dataset.name:
        hint = f"name another data set to write, as `convert {source.name} to packed`"
        settings.report(
            "E211", f"`{source.name}` is converted to itself", hint, [Label(written, "this is what is read")]
        )
        return
    if source.samples != dataset.samples:
        settings.report(
            "E211",
            f"`{source.name}` has {count(source.samples, 'sample')}, and `{dataset.name}` {dataset.samples}",
            f"write `samples {source.samples}` in `dataset {dataset.name}`: each sample becomes one",
            [Label(written, f"{dataset.samples} here"), Label(read, f"{source.samples} here")],
            nouns[dataset.name].labels("samples", "too many or too few"),
        )
    if verb.access.is_mpi:
        settings.report(
            "E211",
            f"`convert` does not write by `api {verb.access.api}`",
            "use `api posix`: each file is written by one rank",
            ("api", "ranks write together"),
        )
    if verb.decode:
        hint = "leave it out, and give its time by `preprocess 1 ms busy`"
        _check_decoder(settings, source, nouns[source.name], "", hint)
