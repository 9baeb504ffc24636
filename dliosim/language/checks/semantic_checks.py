"""Checks of settings together: a loop, its data set, and the job (E201 to E207, E211, W303 to W306)."""

from __future__ import annotations

from dliosim.language.checks import checkpoint_checks, external_readers
from dliosim.language.diagnostics import Diagnostic, Label
from dliosim.language.settings.block_settings import Settings, make_diagnostic
from dliosim.language.source import Span
from dliosim.model import MPI_APIS, PAGE, Access, Checkpoint, Dataset, Loop
from dliosim.model.epoch_size import (
    LARGEST_TABLE,
    files_in_table,
    has_order_dependent_shards,
    ranges_of_sample,
    shard_bounds,
    steps_of_epoch,
)
from dliosim.plugins import APIS
from dliosim.readable import count


def check_prepare(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report the findings about a `prepare` verb."""
    found = settings.context.found
    if access.api == "mpi-collective" and not _is_shared(dataset):
        found.append(_shared_file_error(settings, data, dataset))
    _can_bypass_cache(settings, access)
    _check_hints(settings, access)
    found.extend(external_readers.check_plugin(settings, access))


def check_checkpoint(settings: Settings, built: Checkpoint) -> None:
    """Report the findings about a checkpoint."""
    if built.access.api == "mpi-collective" and built.writers.kind != "shared file":
        labels = [
            *settings.labels("api", "all ranks must call write together"),
            *settings.labels(
                "writers", "but not every rank writes to one file", "but each rank writes a file (the default)"
            ),
        ]
        hint = "use `api mpi-independent`, or let all write one file: `writers all ranks into shared file`"
        message = "collective access needs one file shared by every rank"
        settings.context.found.append(make_diagnostic("E204", message, labels, hint))
    _can_bypass_cache(settings, built.access)
    _check_hints(settings, built.access)
    settings.context.found.extend(external_readers.check_plugin(settings, built.access))
    settings.context.found.extend(checkpoint_checks.check_contradictions(settings, built))


def check_loop(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> None:
    """Report the findings about a loop that reads `dataset`, whose settings are `data`."""
    found = settings.context.found
    found.extend(_check_collective(settings, loop, dataset, data))
    found.extend(_check_contradictions(settings, loop))
    found.extend(_check_decode(settings, loop, dataset, data))
    found.extend(_check_memory_cache(settings, loop.access, dataset, data))
    if loop.access.through == "library":
        found.extend(external_readers.check_library(settings, loop.access, dataset, data))
    else:
        found.extend(_check_alignment(settings, loop, dataset, data))
        found.extend(_check_engine(settings, loop.access))
        _check_hints(settings, loop.access)
    found.extend(external_readers.check_plugin(settings, loop.access))
    _check_communicator(settings, loop.access, dataset, data)
    if large := _check_plan_size(settings, loop, dataset, data):
        found.extend(large)
    elif steps := _check_shards(settings, loop, dataset, data):
        found.extend(_check_cadences(settings, loop, dataset))
        found.extend(_check_prefetch(settings, loop, steps))
    if loop.access.api in MPI_APIS and loop.access.readers > 1:
        labels = [
            *settings.labels("readers", "only one of these reads at a time"),
            *settings.labels("api", "one lock a process"),
        ]
        message = f"{loop.access.readers} readers are no faster than one with MPI-IO"
        found.append(make_diagnostic("W304", message, labels, "use `readers 1`, or `api posix`"))


def _check_plan_size(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> list[Diagnostic]:
    """Return E113 for a step or an order of files whose plan does not fit into a rank's memory."""
    found = []
    pieces = ranges_of_sample(loop, dataset)
    if loop.batch * pieces > LARGEST_TABLE:
        labels = settings.labels("batch", f"samples of a rank and step: {loop.batch:_}", "1 sample (the default batch)")
        message = f"a step of `{loop.name}` would have {loop.batch:_} samples"
        if pieces > 1:
            labels += settings.labels("transfer", "cuts samples into calls")
            labels += data.labels("chunk", "cuts samples into pieces") + data.labels("datasets", "parts of a sample")
            message = f"a step of `{loop.name}` would take some {loop.batch * pieces:_} calls"
        found.append(make_diagnostic("E113", message, labels, f"at most {LARGEST_TABLE:_}, on each rank"))
    files = files_in_table(loop, dataset, settings.context.scope.job.ranks)
    if files > LARGEST_TABLE:
        head = "shard" if loop.shard == "by file" else "shuffle"
        labels = settings.labels(head, f"each rank needs a table of {files:_} files")
        labels += data.labels("from files" if dataset.source else "layout", f"{dataset.layout.files:_} files")
        found.append(
            make_diagnostic(
                "E113", f"`{loop.name}` goes through too many files", labels, f"at most {LARGEST_TABLE:_} on each rank"
            )
        )
    return found


def _is_shared(dataset: Dataset) -> bool:
    return dataset.layout.kind == "shared file" or (dataset.layout.kind == "files" and dataset.layout.files == 1)


def _shared_file_error(settings: Settings, data: Settings, dataset: Dataset) -> Diagnostic:
    reason = {
        "file per sample": "but each sample is a file of its own",
        "files": f"but the samples are in {dataset.layout.files} files",
        "file per rank": "but each rank has a file of its own",
    }[dataset.layout.kind]
    verb = "write" if settings.block.kind == "prepare" else "read"
    labels = [
        *settings.labels("api", f"all ranks must call {verb} together"),
        *(
            data.labels("from files", reason)
            if dataset.source
            else data.labels("layout", reason, f"{reason} (the default)")
        ),
    ]
    other = "name one file" if dataset.source else "store the samples in one file: `layout shared file`"
    hint = f"use `api mpi-independent`, or {other}"
    return make_diagnostic("E204", "collective access needs one file shared by every rank", labels, hint)


def _can_bypass_cache(settings: Settings, access: Access) -> bool:
    """Return False, and report E206, where api or transfer cannot do what `cache off` asks."""
    if access.cache != "off":
        return True
    if access.api not in MPI_APIS:
        if access.transfer is None or access.transfer >= PAGE:
            return True
        labels = [
            *settings.labels("transfer", "a call is smaller than a page"),
            *settings.labels("cache", "O_DIRECT moves whole pages"),
        ]
        message = "`cache off` needs calls of at least 4 KiB"
        settings.context.found.append(
            make_diagnostic("E206", message, labels, "use `transfer 4 KiB` or more, or `cache page`")
        )
        return False
    labels = [
        *settings.labels("cache", "past the page cache means O_DIRECT"),
        *settings.labels("api", "MPI-IO offers no O_DIRECT here"),
    ]
    message = f"`cache off` does not work with `api {access.api}`"
    settings.context.found.append(make_diagnostic("E206", message, labels, "`api posix` can; or `cache page`"))
    return False


def _check_hints(settings: Settings, access: Access) -> None:
    """Report W305 for each `hint`, and for `hints`, that has no effect."""
    if access.api != "posix":
        return
    for line in [*(settings.all_lines("hints") if access.hint_set != "library" else []), *settings.all_lines("hint")]:
        labels = [
            Label(line.phrase, "for the MPI library"),
            *settings.labels("api", "not asked to do I/O", "which `api posix` (the default) does not use"),
        ]
        hint = "leave it out, or use `api mpi-independent` or `api mpi-collective`"
        settings.context.found.append(
            make_diagnostic("W305", f"`{line.head}` has no effect with `api posix`", labels, hint)
        )


def _check_communicator(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> None:
    """Report W305 for a `communicator` where ranks open no file together."""
    if access.communicator == "world" or access.api not in APIS.own:
        return
    hint = "leave it out, or use `api mpi-independent` or `api mpi-collective`"
    alone = ("api", f"`api {access.api}`", "each rank opens files for itself")
    if access.api != "posix":
        hint = "leave it out"
        if not _is_shared(dataset):
            alone = ("layout", f"`layout {dataset.layout.kind}`", "each rank opens the files that it reads for itself")
        elif access.open == "each sample":
            alone = ("open", "`open each sample`", "each rank opens the file for itself")
        else:
            return
    head, setting, reason = alone
    place = data if head == "layout" else settings
    labels = [*settings.labels("communicator", "ranks that open the file together"), *place.labels(head, reason)]
    message = f"`communicator` has no effect with {setting}"
    settings.context.found.append(make_diagnostic("W305", message, labels, hint))


def _check_contradictions(settings: Settings, loop: Loop) -> list[Diagnostic]:
    """Return E211 for settings that are each right but cannot be used together."""
    found = []
    cadences = zip(settings.all_lines("checkpoint"), loop.checkpoints, strict=True)
    in_step: list[Span] = []
    timed: list[Span] = []
    for line, cadence in cadences:
        if cadence.unit in ("steps", "seconds"):
            (in_step if cadence.unit == "steps" else timed).append(line.phrase)
    if timed and loop.sync.kind == "off":
        labels = [
            *(Label(phrase, "each rank looks at its own clock") for phrase in timed),
            *settings.labels("sync", "nothing lets ranks agree on the step"),
        ]
        message = f"ranks of `{loop.name}` cannot agree on the step at which they save"
        found.append(
            make_diagnostic("E211", message, labels, "use `sync barrier`, or `every N steps` in place of a time")
        )
    together = loop.access.api == "mpi-collective" or loop.access.scatter
    if loop.seconds is not None and loop.sync.kind == "off" and (together or in_step):
        others = [Label(phrase, "but all ranks save at the same step") for phrase in in_step]
        if loop.access.api == "mpi-collective":
            others += settings.labels("api", "but all ranks read each step together")
        if loop.access.scatter:
            others += settings.labels("scatter", "but one rank reads each step for all of its node")
        labels = [
            *settings.labels("for", "each rank looks at its own clock"),
            *settings.labels("sync", "nothing lets ranks agree on the last step"),
            *others,
        ]
        message = f"ranks of `{loop.name}` cannot agree on the last step"
        found.append(make_diagnostic("E211", message, labels, "use `sync barrier`, or `steps N` in place of `for`"))
    if loop.access.api == "mpi-collective" and loop.access.order == "as planned":
        labels = [
            *settings.labels("order", "samples are shuffled, or may be"),
            *settings.labels("api", "but one view reads the batch, and must go forward in the file"),
        ]
        message = "`order as planned` does not work with `api mpi-collective`"
        found.append(make_diagnostic("E211", message, labels, "leave `order` out, or use `api mpi-independent`"))
    found.extend(_check_scatter(settings, loop))
    if loop.arrivals is not None and loop.access.readers:
        head = "readers" if settings.find_line("readers") is not None else "prefetch"
        labels = [
            *settings.labels(head, "this reads ahead"),
            *settings.labels("requests", "but no request is known before it arrives"),
        ]
        message = f"`{head}` with `requests`: data would be read before they are asked for"
        found.append(make_diagnostic("E211", message, labels, f"leave out `{head}`"))
    return found


def _check_scatter(settings: Settings, loop: Loop) -> list[Diagnostic]:
    """Return E211 for settings that `scatter by node` cannot be combined with."""
    if not loop.access.scatter:
        return []
    ahead = "readers" if settings.find_line("readers") is not None else "prefetch"
    refused = [
        (loop.access.api == "mpi-collective", "api", "all ranks read each step together", "use another api"),
        (loop.access.readers > 0, ahead, "this reads ahead", f"leave `{ahead}` out"),
        (loop.arrivals is not None, "requests", "each rank's come when they come", "leave `scatter` out"),
    ]
    found = []
    for is_wrong, head, reason, hint in refused:
        if is_wrong:
            labels = [
                *settings.labels("scatter", "one rank reads each step for all of its node, in the step itself"),
                *settings.labels(head, reason),
            ]
            found.append(make_diagnostic("E211", f"`scatter by node` does not work with this `{head}`", labels, hint))
    return found


def _check_collective(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> list[Diagnostic]:
    if loop.access.api != "mpi-collective":
        return []
    if not _is_shared(dataset):
        return [_shared_file_error(settings, data, dataset)]
    if loop.access.open == "each sample":
        labels = [
            *settings.labels("open", "ranks would open at different times"),
            *settings.labels("api", "all must open together"),
        ]
        message = "collective access cannot open the file for each sample"
        return [make_diagnostic("E205", message, labels, "use `open once` or `open each epoch`")]
    return []


def _check_engine(settings: Settings, access: Access) -> list[Diagnostic]:
    """Return E211 for an `engine` that does not work here, and E206 with `cache off`."""
    if settings.find_line("engine") is None or access.api not in APIS.own:
        return []
    api, mapped = access.api, access.engine == "mmap"
    if api == "mpi-collective":
        hint = "leave `engine` out, or use `api posix`"
        refused = "E211", f"api {api}", "one collective call reads the whole batch, however MPI does it", hint
    elif api == "mpi-independent" and mapped:
        refused = "E211", f"api {api}", "MPI-IO makes a call for each piece", "`api posix` can; or `engine preadv`"
    elif mapped and access.cache == "off":
        hint = "use `engine queued` or `engine preadv`; or `cache page`"
        refused = "E206", "cache off", "O_DIRECT goes past that cache", hint
    elif mapped and access.transfer is not None:
        hint = "leave `transfer` out, or use `engine preadv`"
        refused = "E211", "transfer", "there are no calls that this could cut", hint
    else:
        return []
    code, setting, reason, hint = refused
    what = {
        "preadv": "one call after the other",
        "mmap": "a batch is copied out of a mapping of the page cache",
        "queued": "each rank keeps calls of its own in flight",
    }[access.engine]
    labels = [*settings.labels("engine", what), *settings.labels(setting.split()[0], reason)]
    return [make_diagnostic(code, f"`engine {access.engine}` does not work with `{setting}`", labels, hint)]


def _check_alignment(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> list[Diagnostic]:
    if not _can_bypass_cache(settings, loop.access) or loop.access.cache != "off":
        return []
    if dataset.format != "raw" or dataset.source:
        return []  # samples cannot be aligned, so the reader widens calls to whole pages
    labels = settings.labels("cache", "O_DIRECT reads whole aligned pages")
    alone = dataset.layout.files == dataset.samples
    aligned = dataset.header % PAGE == 0 and (alone or (dataset.constant_size or 1) % PAGE == 0)
    if aligned or dataset.align % PAGE == 0:
        return []
    head = "align" if data.find_line("align") is not None else "header" if dataset.header % PAGE else "size"
    labels = [*labels, *data.labels(head, "but samples do not begin at multiples of 4 KiB")]
    return [
        make_diagnostic(
            "E206", "`cache off` needs aligned samples", labels, f"add `align 4 KiB` to data set `{dataset.name}`"
        )
    ]


def _check_decode(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> list[Diagnostic]:
    """Return E211 where `decode on` cannot work, and W306 where there is nothing to decode."""
    if not loop.decode:
        return []
    access, found = loop.access, []
    if access.transfer is not None and access.readers > 0 and access.by == "sample":
        labels = [
            *settings.labels("decode", "the thread that reads a sample decodes it"),
            *settings.labels("readers", "but each of these takes calls as they come"),
            *settings.labels("transfer", "one sample may need several calls"),
        ]
        message = "`decode on` does not work with `readers … by sample` and `transfer`"
        found.append(make_diagnostic("E211", message, labels, "use `readers … by batch`, or `transfer whole sample`"))
    if dataset.format == "raw":
        labels = [
            *settings.labels("decode", "the bytes are used as they are"),
            *data.labels("format", "no encoding", "the format is raw (the default)"),
        ]
        found.append(
            make_diagnostic("W306", "`decode on`, and raw samples have nothing to decode", labels, "leave it out")
        )
    if dataset.format == "parquet" and access.through == "direct":
        labels = [
            *settings.labels("decode", "a decoder must be run on what is read"),
            *data.labels("format", "parts of its files do not say how they are decoded", "found by the files' names"),
        ]
        message = "`decode on` does not work with `through direct` here: parquet is decoded by its library alone"
        found.append(
            make_diagnostic("E211", message, labels, "use `through library`; or leave `decode` out, to read only")
        )
    return found


def _check_memory_cache(settings: Settings, access: Access, dataset: Dataset, data: Settings) -> list[Diagnostic]:
    """Return E211 for `cache memory` where a sample is not one range of bytes of its own."""
    if access.cache != "memory":
        return []
    several = dataset.parts > 1 or len(dataset.names) > 1
    if several:
        head, reason = "datasets", "a sample is made of several ranges"
    elif dataset.compress is not None:
        head, reason = "compress", "samples share what is compressed as one"
    elif dataset.format == "parquet":
        head, reason = "format", "samples share pages of columns"
    elif (
        dataset.chunk is not None
        and dataset.chunk.unit == "bytes"
        and dataset.chunk.number < (dataset.constant_size or 0)
    ):
        head, reason = "chunk", "a sample is cut into several"
    else:
        return []
    labels = [*settings.labels("cache", "keeps samples that are ranges of bytes"), *data.labels(head, reason)]
    message = f"`cache memory` does not keep samples of `{dataset.name}`"
    return [make_diagnostic("E211", message, labels, "use `cache page`, which keeps what is read as it is stored")]


def _check_shards(settings: Settings, loop: Loop, dataset: Dataset, data: Settings) -> int:
    found = settings.context.found
    ranks = settings.context.scope.job.ranks
    if loop.shard == "by file" and dataset.layout.files < ranks:
        files = dataset.layout.files
        counted = f"{files} file{'s' if files > 1 else ''}"
        labels = [
            *settings.labels("shard", f"{ranks} ranks"),
            *(
                data.labels("from files", counted)
                if dataset.source
                else data.labels("layout", counted, f"{counted} (the default layout)")
            ),
        ]
        message = f"{ranks - files} of {ranks} ranks would have no file to read"
        found.append(make_diagnostic("E203", message, labels, f"use `shard by sample`, or at least {ranks} files"))
        return 0
    if has_order_dependent_shards(loop, dataset):
        labels = [
            *settings.labels("shuffle", "in another order each rank would have another number of samples"),
            *settings.labels("shard", "a rank reads whole files"),
            *data.labels("from files", "which hold different numbers of samples"),
        ]
        message = f"`shard by file` of shuffled files in `{loop.name}`, and these are of different lengths"
        hint = "use `shuffle files within shard`, or `shard by sample` or `by block`"
        found.append(make_diagnostic("E215", message, labels, hint))
        return 0
    steps = steps_of_epoch(loop, dataset, ranks)
    fewest = shard_bounds(loop, dataset, ranks)[0]
    if steps and (fewest or loop.last_batch != "pad"):
        return steps
    samples = "from files" if dataset.source else "samples"
    share = f"{fewest} sample{'' if fewest == 1 else 's'}"
    if loop.last_batch == "pad":
        labels = [
            Label(settings.setting_span("last batch"), "nothing to wrap round to"),
            *data.labels(samples, "too few"),
        ]
        message = f"`{loop.name}` cannot pad: a rank has no sample of its own"
        found.append(
            make_diagnostic("E201", message, labels, f"use at least {ranks * loop.batch} samples, or `last batch keep`")
        )
        return 0
    label = f"{loop.batch} per rank and step, and a rank has {share}"
    if loop.shard == "by sample":
        label = f"{loop.batch} per rank, {loop.batch * ranks} per step"
    labels = [
        *settings.labels("batch", label, f"{label} (the default batch)"),
        *data.labels(samples, f"{dataset.samples} samples"),
    ]
    largest = dataset.samples // ranks if loop.shard == "by sample" else fewest
    hint = (
        f"the largest batch is {largest} per rank; or `last batch keep`"
        if largest
        else "use more samples, or `last batch keep`"
    )
    found.append(
        make_diagnostic("E201", f"the batch is larger than the data: `{loop.name}` would have zero steps", labels, hint)
    )
    return 0


def _check_cadences(settings: Settings, loop: Loop, dataset: Dataset) -> list[Diagnostic]:
    ranks = settings.context.scope.job.ranks
    # Steps are counted within an epoch; requests are one stream, even where it reads the data set several times.
    total = steps_of_epoch(loop, dataset, ranks) if loop.arrivals is None else loop.arrivals.requests
    found = checkpoint_checks.check_cadence_length(settings, loop, total)
    if loop.sync.every > total:
        labels = settings.labels("sync", f"the last step is {total}")
        message = f"`{loop.name}` never synchronises: every {loop.sync.every} steps"
        found.append(make_diagnostic("E207", message, labels, f"at most `every {count(total, 'step')}`, or `sync off`"))
    return found


def _check_prefetch(settings: Settings, loop: Loop, steps: int) -> list[Diagnostic]:
    if loop.access.prefetch <= steps or loop.arrivals is not None or settings.find_line("prefetch") is None:
        return []
    labels = settings.labels("prefetch", f"an epoch has {steps} step{'' if steps == 1 else 's'}")
    return [
        make_diagnostic(
            "W303",
            f"`{loop.name}` prefetches more than an epoch",
            labels,
            f"at most `prefetch {count(steps, 'batch', 'batches')}` has an effect",
        )
    ]
