"""Verbs and loops, with the data sets that they read: compile blocks into the dataclasses of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast

from dliosim import model
from dliosim.language.blocks import external_datasets, restores
from dliosim.language.checks.access_checks import check_prepare
from dliosim.language.checks.loop_checks import check_convert, check_loop, check_unread_loop
from dliosim.language.diagnostics import Attempt, Label, mistake
from dliosim.language.settings.access import compile_access, merge_access
from dliosim.language.settings.block_settings import CompileContext, CompiledNouns, Settings, warn_about_draws
from dliosim.language.syntax import declarations
from dliosim.language.syntax.ast import PatternBlock, Setting
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import range_mistake
from dliosim.model import Dataset, Sources
from dliosim.model.joined import WHOLE, find_dataset, join_datasets
from dliosim.model.verbs import DROP_LIMIT, flatten_verbs
from dliosim.readable import count
from dliosim.units import COUNT, RATIO, TIME


def read_sources(scope: Scope, node: SyntaxNode, find: Callable[[SyntaxNode], Dataset | None]) -> Dataset | None:
    """Return the data set that a `sources` node names, or several as one; None if one of them has a mistake.

    Raises Mistake: E102 for a data set twice, E113 for weights that are no multiples of 0.1 % or not 100 % in all.
    """
    until = node.find("all_end") or node.find("first_ends")
    parts = [child for child in node.children if child is not until]
    names = [child if node.kind == "names" else child.children[0] for child in parts]
    for number, name in enumerate(names):
        for before in names[:number]:
            if before.text == name.text:
                more = [Label(before.span, "and here")]
                raise mistake("E102", f"`{name.text}` is read twice", name.span, "a data set is named once", more=more)
    found = [find(name) for name in names]
    datasets = [one for one in found if one is not None]
    if len(datasets) < len(found):
        return None
    if len(datasets) == 1:
        return datasets[0]
    weights = tuple(_weight(scope, child.children[1]) for child in parts) if node.kind == "mixture" else ()
    if weights and sum(weights) != WHOLE:
        text = f"the weights add up to {sum(weights) / 10:g} %"
        raise mistake("E113", text, node.span, "must be 100 %", hint="`code 70 %, text 30 %` reads 7 of 10 from `code`")
    repeated = until is not None and until.kind == "all_end"
    return join_datasets(Sources(tuple(name.text for name in names), weights, repeated), datasets)


def _weight(scope: Scope, node: SyntaxNode) -> int:
    share = scope.require_dimension(node, RATIO)
    amount = share.amount * WHOLE
    if amount.denominator != 1 or not 0 < amount < WHOLE:
        raise range_mistake(share, "a multiple of 0.1 %, above 0 % and below 100 %")
    return int(amount)


@dataclass(slots=True)
class VerbCompiler:
    """Compiles the verbs of a pattern in order."""

    #: the document, the scope, and what was found
    context: CompileContext
    #: data sets and checkpoints that verbs name
    nouns: CompiledNouns
    #: inspects the files of data sets `from files`
    finder: model.Finder
    #: settings of each loop, prepare and restore, by the id of its model
    settings: dict[int, Settings] = field(default_factory=dict)
    #: how often each checkpoint was saved by the verbs so far; None if a clock decides it
    saves: dict[str, int | None] = field(default_factory=dict)

    def compile_verbs(self, blocks: list[PatternBlock]) -> tuple[model.Verb, ...]:
        """Return the verbs of a file or of a `repeat`; a verb with a mistake is left out."""
        verbs: list[model.Verb] = []
        for block in blocks:
            with self.context.reporting():
                verb = self._compile_verb(block)
                if verb is not None:
                    verbs.append(verb)
                    self._count_saves(verb)
        return tuple(verbs)

    def _compile_verb(self, block: PatternBlock) -> model.Verb | None:
        if block.kind in declarations.LOOPS:
            return self._compile_loop(block)
        if block.kind in ("prepare", "convert"):
            return self._compile_prepare(block)
        if block.kind == "stage":
            return self._compile_stage(block)
        if block.kind == "barrier":
            return model.Barrier()
        if block.kind == "drop caches":
            return model.DropCaches()
        if block.kind in ("save", "restore"):
            name = self._checkpoint_name(block.header["NAME"])
            return model.Save(name) if block.kind == "save" else self._compile_restore(block, name)
        scope, phrase, times = self.context.scope, block.header["phrase"].span, 1
        accepts = partial(scope.has_dimension, dimensions=(TIME if block.kind == "pause" else COUNT,))
        with self.context.reporting(phrase, Attempt(block.kind, "", phrase, accepts)):
            if block.kind == "pause":
                return self._compile_pause(block)
            times = scope.count(scope.phrase("count", phrase).only_child)
        return self._compile_repeat(block, times) if block.kind == "repeat" else None

    def _compile_repeat(self, block: PatternBlock, times: int) -> model.Repeat:
        before = self.saves.copy()
        body = self.compile_verbs(block.body)
        if times > 1:
            grown = {name for name in self.saves if self.saves[name] != before.get(name, 0)}
            for verb, _ in flatten_verbs(body):
                if isinstance(verb, model.Restore) and verb.each and verb.checkpoint in grown:
                    restores.report_growth(self.settings[id(verb)], verb)
            self.saves = restores.multiply_saves(before, self.saves, times)
        return model.Repeat(times, body)

    def _count_saves(self, verb: model.Verb) -> None:
        """Add what a verb saves to `saves`."""
        read = verb.dataset if isinstance(verb, model.Loop) else ""
        known = {name: one for name, one in self.nouns.datasets.items() if one is not None}
        dataset = find_dataset(read, known) if read else None
        for name, more in restores.list_saves(verb, dataset, self.context.scope.job.ranks):
            so_far = self.saves.get(name, 0)
            self.saves[name] = None if so_far is None or more is None else so_far + more

    def _compile_pause(self, block: PatternBlock) -> model.Verb:
        place = block.header["phrase"].span
        time = self.context.scope.quantity(self.context.scope.phrase("quantity", place), TIME)
        block.settings = [Setting("pause", block.place, place)]
        warn_about_draws(Settings(self.context, block, block.settings), "pause", time)
        return model.Pause(time)

    def _find_dataset(self, name: SyntaxNode) -> model.Dataset | None:
        self.context.find_noun(name, "dataset")
        self.nouns.used.add(name.text)
        return self.nouns.datasets.get(name.text)

    def _read_dataset(self, name: SyntaxNode) -> model.Dataset | None:
        """Return the data set that a loop reads; files that exist already are inspected now, and once."""
        dataset = self._find_dataset(name)
        if dataset is not None and dataset.source and not dataset.found:
            dataset = external_datasets.inspect_files(self.nouns.settings[dataset.name], dataset, self.finder)
            self.nouns.datasets[name.text] = dataset
        return dataset

    def _checkpoint_name(self, name: SyntaxNode) -> str:
        self.context.find_noun(name, "checkpoint")
        self.nouns.used.add(name.text)
        return name.text

    def _compile_restore(self, block: PatternBlock, name: str) -> model.Restore:
        settings = Settings(self.context, block, block.settings)
        verb = restores.compile_restore(settings, name, self.nouns.checkpoints.get(name), self.saves.get(name, 0))
        self.settings[id(verb)] = settings
        return verb

    def _compile_prepare(self, block: PatternBlock) -> model.Verb | None:
        """Return the verb of a `prepare` or `convert` block."""
        name, read = block.header["NAME"], block.header.get("converted")
        source = self._read_dataset(read.only_child) if read else None
        dataset = self._find_dataset(name)
        if dataset is not None and dataset.source:
            raise external_datasets.prepare_refusal(self.nouns.settings[dataset.name], name.span)
        settings = merge_access(self.context, block, block.header.get("with"))
        before = len(self.context.found)
        access, afresh = compile_access(settings, None), "AFRESH" in block.header
        if read:
            fields = settings.read_fields(model.Convert)
            verb: model.Prepare = model.Convert(name.text, access, afresh=True, source=read.only_child.text, **fields)
        else:
            verb = model.Prepare(name.text, access, afresh, **settings.read_fields(model.Prepare))
        if isinstance(verb, model.Convert) and verb.preprocess is not None:
            warn_about_draws(settings, "preprocess", verb.preprocess.time)
        self.settings[id(verb)] = settings
        if dataset is not None and len(self.context.found) == before:
            check_prepare(settings, verb.access, dataset, self.nouns.settings[dataset.name])
            if isinstance(verb, model.Convert) and source is not None:
                check_convert(settings, verb, self.nouns.settings, source, dataset)
        return verb

    def _compile_stage(self, block: PatternBlock) -> model.Stage | None:
        """Return the verb of a `stage` block; None without its data set. E211 if the data are on that root already."""
        name, root = block.header["NAME"], block.header["target"].only_child
        dataset = self._read_dataset(name)
        settings = Settings(self.context, block, block.settings)
        verb = model.Stage(name.text, root.text, **settings.read_fields(model.Stage))
        self.settings[id(verb)] = settings
        if dataset is None:
            return None
        if dataset.root == verb.root:
            hint = "name the root of the nodes' own storage, as `local`, and give its place by `--root local=DIR`"
            label = Label(root.span, "the data are there already")
            settings.report("E211", f"`{dataset.name}` is on `root {dataset.root}`", hint, [label])
        return verb

    # ---- loops ----------------------------------------------------------------------------------------------------

    def _compile_loop(self, block: PatternBlock) -> model.Loop | None:
        context = self.context
        before = len(context.found)
        own = Settings(context, block, block.settings)
        reads = own.find_line("read") is not None
        if not reads:
            own.require(("read", "steps"))
        nothing: tuple[model.Dataset | None, SyntaxNode | None] = (None, None)
        dataset, clause = own.read(
            "read",
            lambda node: (read_sources(context.scope, node.children[0], self._read_dataset), node.find("with")),
            nothing,
        )
        settings = own
        with context.reporting(own.setting_span("read")):
            settings = merge_access(context, block, clause)
        fields = settings.read_fields(model.Loop, batch=self._batch, sync=self._sync, cold_within=self._cold_within)
        arrivals = fields.get("arrivals")
        for head in ("compute", "preprocess"):
            if head in fields:
                warn_about_draws(settings, head, fields[head].time)
        if arrivals is not None:
            warn_about_draws(settings, "requests", arrivals.gap)
            # Requests come from users, who do not wait for each other; so ranks that answer them do not sync.
            fields.setdefault("sync", model.Sync("off"))
        for head in ("shuffle", "checkpoint"):
            settings.check_off(head)
        cadences = [settings.convert(line, self._cadence, None) for line in settings.all_lines("checkpoint")]
        loop = model.Loop(
            kind=cast(Literal["train", "evaluate", "infer"], block.kind),
            name=block.name,
            dataset="" if dataset is None else getattr(dataset, "sources", dataset.name),
            access=compile_access(settings, _find_layout(dataset)),
            shuffle=self._shuffle(settings),
            checkpoints=tuple(cadence for cadence in cadences if cadence is not None),
            **fields,
        )
        if arrivals is not None:
            _check_requests(settings)
        broken = block.broken or context.has_errors(before)
        # A cadence with a mistake is left out; that mistake is reported, so no check of the loop adds another.
        broken = broken or len(loop.checkpoints) < len(settings.all_lines("checkpoint"))
        evaluations = [self._compile_evaluation(inner, loop.name, loop.epochs) for inner in block.body]
        loop = replace(loop, evaluations=tuple(found for found in evaluations if found is not None))
        self.settings[id(loop)] = settings
        if broken or (reads and dataset is None):
            return None
        if dataset is None:
            check_unread_loop(settings, loop)
        else:
            check_loop(settings, loop, dataset, self.nouns.settings)
        return loop

    def _compile_evaluation(self, block: PatternBlock, train: str, epochs: int) -> model.Evaluation | None:
        with self.context.reporting():
            scope, header = self.context.scope, block.header
            every = scope.count(header["value"]) if "value" in header else 1
            first = scope.count(header["first"].only_child) if "first" in header else 0
            if (first or every) > epochs:
                there = "there is 1" if epochs == 1 else f"there are {epochs}"
                when = f"from epoch {first}" if first else f"every {every} epochs"
                message = f"`{block.name}` runs {when}, and {there}: it never runs"
                label = f"the last epoch is {epochs}"
                hint = (
                    f"write `evaluate every {count(epochs, 'epoch')} {{`, or give `-D {train}.epochs={first or every}`"
                )
                raise mistake("E207", message, header["first" if first else "value"].span, label, hint=hint)
            loop = self._compile_loop(block)
            return None if loop is None else model.Evaluation(every, loop, first)
        return None

    def _batch(self, node: SyntaxNode) -> int:
        scope = self.context.scope
        batch = scope.count(node.only_child)
        if node.kind == "per_rank":
            return batch
        ranks = scope.job.ranks
        if batch % ranks:
            nearest = [str(value) for value in (batch // ranks * ranks, -(-batch // ranks) * ranks) if value]
            raise mistake(
                "E202",
                f"a total batch of {batch} cannot be dealt evenly over {ranks} ranks",
                node.only_child.span,
                f"not a multiple of {ranks}",
                hint=f"write {' or '.join(f'`batch {value} total`' for value in nearest)}",
            )
        return batch // ranks

    def _shuffle(self, settings: Settings) -> model.Shuffle:
        shuffle = model.Shuffle()
        for line in settings.all_lines("shuffle"):
            shuffle = settings.convert(line, lambda node, shuffle=shuffle: self._merge_shuffle(node, shuffle), shuffle)  # type: ignore[misc]
        return shuffle

    def _merge_shuffle(self, node: SyntaxNode, shuffle: model.Shuffle) -> model.Shuffle:
        once = node.find("once") is not None
        if node.kind == "shuffle_files":
            files: Literal["globally", "within shard"] = "within shard" if node.find("within_shard") else "globally"
            return replace(shuffle, files=files, files_once=once)
        scope = node.children[0]
        kind = cast(Literal["globally", "within shard", "within buffer"], scope.kind.replace("_", " "))
        buffer = self.context.scope.count(scope.only_child, 1, 1 << 32) if scope.kind == "within_buffer" else 0
        return replace(shuffle, samples=kind, samples_once=once, buffer=buffer)

    def _sync(self, node: SyntaxNode) -> model.Sync:
        scope, numbers = self.context.scope, list(node.children)
        size = scope.size(numbers.pop(0), 4) if node.kind == "allreduce" else 0
        every = scope.count(numbers[0]) if numbers else 1
        return model.Sync(cast(Literal["off", "barrier", "allreduce"], node.kind), size, every)

    def _cold_within(self, node: SyntaxNode) -> float | None:
        if node.kind == "as_they_are":
            return None
        return self._positive_time(node.only_child) if node.children else DROP_LIMIT

    def _cadence(self, node: SyntaxNode) -> model.Cadence:
        name = self._checkpoint_name(node.children[0])
        if node.kind == "at_end":
            return model.Cadence(name, "end")
        if node.kind == "every_time":
            return model.Cadence(name, "seconds", seconds=self._interval(node.children[0].text, node.children[1]))
        scope, first = self.context.scope, node.find("first")
        numbers = [child for child in node.children[1:] if child is not first]
        every = scope.count(numbers[0]) if numbers else 1
        unit: Literal["steps", "epochs"] = "steps" if node.kind == "every_steps" else "epochs"
        return model.Cadence(name, unit, every, scope.count(first.only_child) if first else 0)

    def _interval(self, name: str, node: SyntaxNode) -> float:
        """Return the seconds of `every 30 s`; E111 for a number without a unit, E113 for 0."""
        value = self.context.scope.value(node)
        if value.dimension == COUNT:
            hint = f"write `checkpoint {name} every {node.text} steps`, or `epochs`, or a time: `every 30 s`"
            raise mistake("E111", "steps, epochs or a time are needed here", value.span, "this is a count", hint=hint)
        return self._positive_time(node)

    def _positive_time(self, node: SyntaxNode) -> float:
        """Return a time in seconds; E113 for 0."""
        seconds = self.context.scope.seconds(node)
        if not seconds:
            raise range_mistake(self.context.scope.value(node), "must be above 0")
        return seconds


def _check_requests(settings: Settings) -> None:
    for head in ("epochs", "steps"):
        line = settings.find_line(head)
        if line is not None:
            settings.report(
                "E210",
                f"`{head}` with `requests`",
                f"leave out `{head}`",
                [Label(line.place, "the data set is read again as needed")],
                ("requests", "this says how many steps there are"),
            )


def _find_layout(dataset: model.Dataset | None) -> model.Layout:
    """Return the layout that decides how long files stay open: of several data sets that of a file per sample."""
    if dataset is None:
        return model.Layout("shared file", 1)
    return next((one.layout for one in dataset.members if one.layout.kind == "file per sample"), dataset.layout)
