"""What the order of additions to dq costs (keep_turns, add_to_dq in attn_cuda.cuh): the backward in one sweep, of stage
3 and of stage 2, as a model. `python3 tests/cuda/schedule.py 2` (or 3; then microseconds until a part is seen). A
block takes the next task, some keys of a head, and goes over its tiles of queries, one a step; it may add the part
of a tile when the keys before have added theirs, and what it adds is seen after a while. Printed is the share of the
blocks' time that steps take; what is left is waiting and the end, where some have nothing to do any more. Beside it:
without an order, and the sweeps without one that this one stands for, of three and four products where it has five.
The lengths of a step and of the while are what the model is given, in microseconds. Blocks of one multiprocessor
share its time evenly here; in truth one has more of it while the other waits."""
import heapq
import itertools
import sys
from collections import namedtuple

# keys of a task, queries of a step, multiprocessors, blocks of each; FLOP/s of all of them by head size; products of
# the sweeps without an order
Sweep = namedtuple("Sweep", "name keys queries processors blocks flops sweeps")
WGMMA = Sweep("stage 3, H100", 128, 64, 132, 1, {128: 510e12, 64: 440e12}, (3, 4))
# 480 is not measured: additions to dq of 3 TB/s in the L2 cache. The sweeps before it had eight products in 437 TFLOP/s
# of five (bench/), so 700 of their own.
SPLIT = WGMMA._replace(name="stage 3, H100, split columns", keys=64, flops={256: 480e12},
                       sweeps=tuple(products * 480 / 700 for products in (3, 3, 2)))
# bench/ has seven products in 145 TFLOP/s of five, so 203 of its own; a multiprocessor of an A100 is taken for as fast
MMA = Sweep("stage 2, H100", 64, 32, 132, 2, {128: 203e12, 64: 203e12}, (3, 4))
MMA_A100 = MMA._replace(name="stage 2, A100", processors=108, flops={size: 203e12 * 108 / 132 for size in (128, 64)})
# Not measured: shared memory hands over operands for 0.64 of the products that tensor cores could make, where it does
# for 0.74 of those of 128 columns, and for 0.60 of those of the sweeps before, which had eight.
MMA_SPLIT = MMA_A100._replace(name="stage 2, A100, split columns", blocks=1,
                              flops={256: MMA_A100.flops[128] * 0.64 / 0.74},
                              sweeps=tuple(products * 0.64 / 0.60 for products in (3, 3, 2)))


def queries_of(sweep, tile, tiles_q, causal):
    """The tiles of queries that the tile-th keys meet, as they come: the last first."""
    return range(tiles_q - 1, sweep.keys // sweep.queries * tile - 1 if causal else -1, -1)


def simulate(sweep, heads, rows, causal, section, step, seen, ordered=True, upward=False, start=1.0):
    """The share of time that steps take; and how long all took, in microseconds."""
    tiles_k, tiles_q, blocks = rows // sweep.keys, rows // sweep.queries, sweep.processors * sweep.blocks
    tasks = [(first + h, tile) for first in range(0, heads, section)
             for tile in range(tiles_k) for h in range(min(section, heads - first))]
    turn = {}                           # (head, tile of queries): keys that have added, and when that was seen
    waiting = {}                        # (head, tile of queries): who waits there
    taken, busy, end = 0, 0.0, 0.0
    events = [(0.0, n, n) for n in range(min(blocks, len(tasks)))]
    at = [None] * blocks                # (head, tile of keys, tiles of queries, how many of them are done)
    order = len(events)
    while events:
        now, _, p = heapq.heappop(events)
        if at[p] is None:
            if taken == len(tasks):
                end = max(end, now)
                continue
            head, tile = tasks[taken]
            taken += 1
            way = list(queries_of(sweep, tile, tiles_q, causal))
            at[p] = [head, tile, way[::-1] if upward else way, 0]
            order += 1
            heapq.heappush(events, (now + start + step, order, p))
            busy += step
            continue
        head, tile, way, done = at[p]   # the products of way[done] are there
        place = (head, way[done])
        if ordered:
            count, when = turn.get(place, (0, 0.0))
            if count < tile:
                waiting.setdefault(place, {})[tile] = p
                continue
            now = max(now, when)
            turn[place] = (tile + 1, now + seen)
            follower = waiting.get(place, {}).pop(tile + 1, None)
            if follower is not None:
                order += 1
                heapq.heappush(events, (now + seen, order, follower))
        at[p][3] += 1
        order += 1
        if at[p][3] == len(way):
            at[p] = None
            heapq.heappush(events, (now, order, p))
        else:
            busy += step
            heapq.heappush(events, (now + step, order, p))
    return busy / (blocks * end), end


def step_of(sweep, size):
    """Five products of a tile, in microseconds"""
    return 10 * sweep.queries * sweep.keys * size / (sweep.flops[size] / sweep.processors / sweep.blocks) * 1e6


def fitting(size, rows):
    """Heads whose rows are in the L2 cache together (task_order_of has twice as many at once)"""
    return max(1, (32 << 20) // (rows * (4 * size + 4 * size)))


def show(sweep, all_rows, seen, tokens=16384, columns=2048):
    print(f"{sweep.name}: {tokens} tokens, {columns} columns; a part is seen {seen:g} us after it is added.\n")
    print("| heads of | rows | causal | heads at once | ordered | no order | other sweeps, time of this |")
    print("|---|---|---|---|---|---|---|")
    for size, rows, causal in itertools.product(sweep.flops, all_rows, (False, True)):
        step, heads, fit = step_of(sweep, size), tokens // rows * (columns // size), fitting(size, rows)
        free, _ = simulate(sweep, heads, rows, causal, fit, step, seen, ordered=False)
        others = sum(simulate(sweep, heads, rows, causal, fit, step * products / 5, seen, ordered=False)[1]
                     for products in sweep.sweeps)
        for section in sorted({1, min(heads, fit), min(heads, 2 * fit), heads}):
            share, end = simulate(sweep, heads, rows, causal, section, step, seen)
            print(f"| {size} | {rows} | {'yes' if causal else 'no'} | {section} | {share:.3f} | {free:.3f} | "
                  f"{others / end:.2f} |", flush=True)
    print()


def main():
    stage = sys.argv[1] if len(sys.argv) > 1 else "3"
    seen = float(sys.argv[2]) if len(sys.argv) > 2 else 1.5
    for sweep in {"2": (MMA, MMA_A100, MMA_SPLIT), "3": (WGMMA, SPLIT)}[stage]:
        show(sweep, (2048, 4096) if stage == "2" else (2048, 4096, 8192, 16384), seen)


if __name__ == "__main__":
    main()
