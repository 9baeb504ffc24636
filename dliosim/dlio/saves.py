"""Checkpoints: DLIO's `checkpoint:` and `model:` sections as the blocks `model` and `checkpoint` of a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from dliosim.dlio.conversion import MUCH, Block, Conversion, Line, Statement, block, epochs_phrase, name_place, setting
from dliosim.model.transformer import OPTIMIZERS, TYPES, Transformer
from dliosim.readable import count, size
from dliosim.units import format_seconds

#: A part of a checkpoint: its name, bytes (of each rank, if all save), and the keys that it came from.
_StatePart: TypeAlias = "tuple[str, int, str]"

#: Parameters of the layer that the first generation adds to every checkpoint where nothing is said.
_FIRST_LAYER: Final = (17_371, 24_740_228)

#: Bytes of the two files that TensorFlow writes for each file of a checkpoint: a counter, and no tensor.
_COUNTERS: Final = 331

#: Bytes that a checkpoint has if nothing is said.
_MODEL_SIZE: Final = 10_240

#: Sizes of a transformer in a pattern: DLIO's key of each, and its default.
_SIZES: Final = {
    "layers": ("num_layers", 1),
    "hidden": ("transformer.hidden_size", 2048),
    "ffn": ("transformer.ffn_hidden_size", 8192),
    "heads": ("transformer.num_attention_heads", 32),
    "kv_heads": ("transformer.num_kv_heads", 8),
    "vocabulary": ("transformer.vocab_size", 32_000),
}

#: Types of its numbers, likewise.
_KINDS: Final = {"weights": ("model_datatype", "fp16"), "optimizer": ("optimizer_datatype", "fp32")}

#: Layers of a transformer that a pattern may have: more are refused.
_MOST_LAYERS: Final = 10_000

#: DLIO's words for types of numbers that a transformer of a pattern takes.
_TYPES: Final = ("fp16", "bf16", "fp32", "fp64")


def checkpoint_blocks(task: Conversion) -> Iterator[Block]:
    """Yield the checkpoint and its model."""
    is_transformer = _is_transformer(task)
    if is_transformer:
        yield block("model transformer_model transformer", _model_lines(task))
    parts = [setting("model", "transformer_model"), *_split_lines(task)] if is_transformer else _part_lines(task)
    yield block("checkpoint state", [*parts, *_file_lines(task, is_transformer)])


def _is_transformer(task: Conversion) -> bool:
    """Return True if a model's tensors follow from its sizes."""
    config = task.config
    is_typed = config.text("model.type") == "transformer"
    if not is_typed and (task.as_run or not config.has("model.transformer.hidden_size")):
        return False
    if task.as_run and task.version.is_first_generation:
        task.approximations.append(f"model.type=transformer: {task.version.name} does not know it")
        return False
    if config.number("model.num_layers", default=-1) < 1:
        task.approximations.append("model.num_layers is not given: nothing of the transformer's layers is saved")
        return False
    return True


def cadence(task: Conversion) -> str:
    """Return when a loop saves: `every 2 epochs`; empty for never."""
    config = task.config
    steps = int(config.number("checkpoint.steps_between_checkpoints", default=-1))
    if steps > 0:
        return f"every {count(steps, 'step')}"
    if steps == 0:
        task.approximations.append("checkpoint.steps_between_checkpoints=0: DLIO never saves then, and this neither")
        return ""
    keys = ("checkpoint.checkpoint_after_epoch", "checkpoint.epochs_between_checkpoints")
    return epochs_phrase(task, "checkpoint", *keys)


def checkpoint_verbs(task: Conversion) -> Iterator[Statement]:
    """Yield the verbs of a file that saves and loads checkpoints without training; none without counts."""
    config = task.config
    pause = config.number("checkpoint.time_between_checkpoints", default=-1)
    pauses = [Line(f"pause {format_seconds(pause)}", config.quote("checkpoint.time_between_checkpoints"))] * (pause > 0)
    writes, reads = (f"checkpoint.num_checkpoints_{word}" for word in ("write", "read"))
    saved, read = _count_saves(task), max(int(config.number(reads, default=-1)), 0)
    if saved:
        yield block(f"repeat {saved}", [*pauses, Line("save state", config.quote(writes))])
    if saved and read > saved:
        task.approximations.append(f"{config.quote(writes, reads)}: DLIO fails after {saved}; here the run ends then")
        read = saved
    if read:
        each = "once" if read == saved else f"of {read} once"
        waits = [setting("pause", line.text.removeprefix("pause "), line.comment) for line in pauses]
        yield block("restore state", [setting("each", each, config.quote(reads)), *waits, *_restore_lines(task)])


def _restore_lines(task: Conversion) -> Iterator[Line]:
    """Yield which rank reads what."""
    if _is_transformer(task) and _zero_stage(task) < 3:
        yield setting("reads", "own part once without sending", "DLIO's data rank 0 alone loads weights")
    key = "checkpoint.recovery_rank_shift"
    if task.config.flag(key) and task.as_run:
        task.approximations.append(f"{key}: DLIO stores it under another name, and never uses it")
    elif task.config.flag(key):
        yield setting("shifted by", "$ranks_per_node ranks", task.config.quote(key))


def name_saved_amount(task: Conversion, every: str) -> None:
    """Report the bytes of a checkpoint, and of all checkpoints that no loop saves, if they are many."""
    config, saves = task.config, 1 if every else _count_saves(task)
    if _is_transformer(task):
        model = _transformer(task)
        state = model.parameters * (TYPES[model.weights] + len(OPTIMIZERS["adam"]) * TYPES[model.state])
        whose = "of all ranks together"
    else:
        state = sum(amount for _, amount, _ in _state_parts(task))
        whose = "of each rank" if _all_ranks_write(task) else "of all ranks together"
    if state * saves < MUCH:
        return
    if config.text("checkpoint.mode", default="default") == "subset":
        whose = f"{whose}, and a subset saves its part"
    text = f"a checkpoint is {size(state, 3)} {whose}"
    if every:
        text = f"{text}; the loop saves one {every}, and all are kept"
    elif saves > 1:
        less = "`++workload.checkpoint.num_checkpoints_write=1` saves one"
        text = f"{text}; a run saves {saves}, which are {size(state * saves, 3)}: {less}"
    task.notes.append(text)


def _count_saves(task: Conversion) -> int:
    """Return how many checkpoints are saved if there is no loop."""
    return max(int(task.config.number("checkpoint.num_checkpoints_write", default=-1)), 0)


def _part_lines(task: Conversion) -> Iterator[Line]:
    """Yield what a checkpoint has that is no transformer's."""
    unit = "per rank" if _all_ranks_write(task) else "total"
    for name, amount, comment in _state_parts(task):
        yield setting("part", f"{name} {amount:_} B {unit}", comment)


def _state_parts(task: Conversion) -> list[_StatePart]:
    """Return the parts of a checkpoint that is no transformer's."""
    parts = list(_tensors(task))
    return _parts_of_files(task, parts) if task.as_run and task.version.is_first_generation else parts


def _tensors(task: Conversion) -> Iterator[_StatePart]:
    """Yield a part for each kind of tensor."""
    config, is_first = task.config, task.version.is_first_generation
    names = task.names("checkpoint.model_size", "model.model_size_bytes")
    names = names if task.as_run else (*names, "model.model_size")
    weights = int(config.number(*names, default=_MODEL_SIZE))
    if weights > 0:
        yield "weights", weights, config.quote(*names)
    section = "checkpoint" if is_first else "model"
    groups = sum(config.integers(f"{section}.optimization_groups"))
    if groups:
        # Each group is written twice, and once more with the others in one tensor.
        yield "optimizer", 3 * groups, config.quote(f"{section}.optimization_groups")
    given = config.integers(f"{section}.layer_parameters")
    layer = sum(given or (_FIRST_LAYER if is_first and task.as_run else ()))
    layers = _count_layers(task)
    if given and not layers:
        task.approximations.append(f"{section}.layer_parameters: no layer is saved without {section}.num_layers")
    for name in ("tensor_parallelism", "pipeline_parallelism"):
        if is_first and config.integer(f"checkpoint.{name}", default=1) > 1:
            task.approximations.append(f"{config.quote(f'checkpoint.{name}')}: who writes saves all layers here")
    if layer and layers:
        keys = config.quote(f"{section}.num_layers", f"{section}.layer_parameters")
        yield "layers", layer * layers, keys or "DLIO's default"


def _count_layers(task: Conversion) -> int:
    """Return the number of layers that are saved, of a checkpoint that is no transformer's."""
    is_first = task.version.is_first_generation
    name = "checkpoint.num_layers" if is_first else "model.num_layers"
    return max(int(task.config.number(name, default=1 if is_first else -1)), 0)


def _parts_of_files(task: Conversion, parts: list[_StatePart]) -> list[_StatePart]:
    """Return what the first generation stores of these tensors, and say what its files are like."""
    files = sum(_count_layers(task) if name == "layers" else 1 for name, _, _ in parts)
    if task.config.text("framework", default="tensorflow") == "pytorch":
        task.approximations.append(
            f"a checkpoint is {count(files, 'file')} by torch.save in DLIO (of each rank that writes), each about "
            "1.7 kB larger than its tensors; here one file of the tensors' bytes"
        )
        return parts
    task.approximations.append(
        f"framework: as TensorFlow saves it, a checkpoint of DLIO has none of its tensors: "
        f"{count(2 * files, 'file')} of {_COUNTERS * files} B together; here one file"
    )
    return [("counters", _COUNTERS * files, "TensorFlow saves none of DLIO's tensors")]


def _all_ranks_write(task: Conversion) -> bool:
    found = task.config.choice("checkpoint.type", ("rank_zero", "all_ranks"), "rank_zero")
    return found == "all_ranks" and (task.version.is_first_generation or not task.as_run)


def _file_lines(task: Conversion, is_transformer: bool) -> Iterator[Line]:
    config = task.config
    each = is_transformer or _all_ranks_write(task)
    yield setting("writers", "into file per rank" if each else "rank 0", config.quote("checkpoint.type"))
    syncs = task.version.syncs_checkpoints if task.as_run else config.flag("checkpoint.fsync")
    keys = config.quote("checkpoint.fsync")
    if task.as_run and keys and syncs != config.flag("checkpoint.fsync"):
        keys += f", which {task.version.name} does not read"
    yield setting("fsync", "on" if syncs else "off", keys)
    if task.as_run:
        yield setting("commit", "none", "DLIO writes its files under their names")
    if task.as_run and task.version.reads_whole_files:
        yield setting("transfer", "32 MiB", "the pieces that DLIO writes")
    folder = name_place(task, "checkpoint.checkpoint_folder", "./checkpoints/") or "checkpoints"
    yield setting("path", f'"{folder}"', config.quote("checkpoint.checkpoint_folder"))


def _model_lines(task: Conversion) -> Iterator[Line]:
    """Yield a transformer: as many parameters as DLIO's."""
    config = task.config
    for word, (key, default) in _SIZES.items():
        value = config.integer(f"model.{key}", default=default, least=1)
        yield setting(word, str(value), config.quote(f"model.{key}"))
    for word, (key, default_type) in _KINDS.items():
        found = config.choice(f"model.{key}", _TYPES, default_type)
        yield setting(word, f"adam {found}" if word == "optimizer" else found, config.quote(f"model.{key}"))
    yield setting("zero", str(_zero_stage(task)), config.quote("model.parallelism.zero_stage") or "DLIO's default")


def _transformer(task: Conversion) -> Transformer:
    """Return the transformer of these lines."""
    config = task.config
    layers, hidden, ffn, heads, kv_heads, vocabulary = (
        config.integer(f"model.{key}", default=default, least=1) for key, default in _SIZES.values()
    )
    weights, state = (config.choice(f"model.{key}", _TYPES, default) for key, default in _KINDS.values())
    layers = min(layers, _MOST_LAYERS)
    return Transformer(config.name, layers, hidden, ffn, heads, kv_heads, vocabulary, weights, state=state)


def _zero_stage(task: Conversion) -> int:
    return task.config.integer("model.parallelism.zero_stage")


def _split_lines(task: Conversion) -> Iterator[Line]:
    """Yield how ranks split a transformer."""
    config = task.config
    tensor, pipeline = (
        config.integer(f"model.parallelism.{name}", default=1, least=1) for name in ("tensor", "pipeline")
    )
    data = int(config.number("model.parallelism.data", default=-1))
    is_subset = config.text("checkpoint.mode", default="default") == "subset"
    if tensor * pipeline > 1 or is_subset:
        copies = str(data) if data > 0 else f"$ranks / {tensor * pipeline}"
        keys = config.quote("model.parallelism.tensor", "model.parallelism.pipeline", "model.parallelism.data")
        order = " order tp-pp-dp" * (pipeline > 1)
        text = f"tensor {tensor} pipeline {pipeline} data {copies}{order}{' subset' * is_subset}"
        yield setting("parallel", text, keys)
