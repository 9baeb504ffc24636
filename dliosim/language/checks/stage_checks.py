"""Checks of `stage` verbs with the loops that read the copies."""

from __future__ import annotations

from collections.abc import Mapping

from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import Settings
from dliosim.model import Loop, Stage, Verb
from dliosim.model.epoch_size import moves_samples
from dliosim.model.verbs import flatten_verbs, loops_after, names_read


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
