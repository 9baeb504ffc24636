"""A rank without MPI: its row is in a file, as those of other ranks of its node are, and it meets them repeatedly.

    python -m tests.execute.watched_program FOLDER RANK NODES LIMIT [END] [rest]

NODES has the ranks of each node, as 0,1/2. The messages of the watcher go to standard output. With `rest` the rank
marks a pause of three seconds and then does nothing. Else it does steps until the file FOLDER/wait exists, and then
waits at a meeting, which stopped ranks never reach.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from time import perf_counter_ns, sleep

from dliosim.execute.stalls import StallActions, StallLimits, Watcher, kill_stopped
from dliosim.measure.progress.board import BARRIER, ROW_BYTES, STEP, Board, BoardRows
from dliosim.measure.progress.stalled_ranks import JobStall
from dliosim.report.progress.stalled_ranks import recovery_text, stall_text


def main(folder: Path, rank: int, nodes: list[list[int]], limits: StallLimits, rests: bool) -> None:
    number = next(number for number, ranks in enumerate(nodes) if rank in ranks)
    with (folder / f"node-{number}").open("r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), ROW_BYTES * len(nodes[number])))
    board = Board(BoardRows(memory), nodes[number].index(rank), sum(map(len, nodes)), f"host{number}")
    board.own_row.introduce(rank)
    board.own_row.begin("train", 2)

    def end(stall: JobStall) -> None:
        kill_stopped(board)
        print(f"{stall_text(stall)}\nended", flush=True)
        sleep(60)

    reactions = StallActions(
        lambda stall: print(stall_text(stall), flush=True), lambda quiet: print(recovery_text(quiet), flush=True), end
    )
    Watcher(board, limits, reactions).start()
    print("begun", flush=True)
    if rests:
        board.own_row.mark_pause(perf_counter_ns() + 30_000_000_000)
    while not rests and not (folder / "wait").exists():
        board.own_row.words[STEP] += 1
        sleep(0.02)
    if not rests:
        board.own_row.arrive(BARRIER)
    sleep(60)


if __name__ == "__main__":
    given = [float(word) if word != "off" else None for word in sys.argv[4:6]]
    parts = [[int(rank) for rank in node.split(",")] for node in sys.argv[3].split("/")]
    main(Path(sys.argv[1]), int(sys.argv[2]), parts, StallLimits(given[0], given[1]), "rest" in sys.argv)
