"""What the order of additions to dq costs (keep_turns in attn_cuda.cuh): the backward of stage 3 in one sweep, as a
model. `python3 tests/cuda/schedule.py`. A multiprocessor takes the next task, 128 keys of a head, and goes over its
tiles of 64 queries, one a step; it may add the part of a tile when the keys before have added theirs, and what it
adds is seen after a while. Printed is the share of the multiprocessors' time that steps take; what is left is waiting
and the end, where some have nothing to do any more. Beside it: without an order, and two sweeps without one, of three
and four products where one has five. The lengths of a step and of the while are what the model is given, in
microseconds."""
import heapq
import sys

PROCESSORS = 132


def queries_of(tile, tiles_q, causal):
    """The tiles of queries that the tile-th 128 keys meet, as they come: the last first."""
    return range(tiles_q - 1, 2 * tile - 1 if causal else -1, -1)


def simulate(heads, rows, causal, section, step, seen, ordered=True, upward=False, start=1.0):
    """The share of time that steps take; and how long all took, in microseconds."""
    tiles_k, tiles_q = rows // 128, rows // 64
    tasks = [(first + h, tile) for first in range(0, heads, section)
             for tile in range(tiles_k) for h in range(min(section, heads - first))]
    turn = {}                           # (head, tile of queries): keys that have added, and when that was seen
    waiting = {}                        # (head, tile of queries): who waits there
    taken, busy, end = 0, 0.0, 0.0
    events = [(0.0, n, n) for n in range(min(PROCESSORS, len(tasks)))]
    at = [None] * PROCESSORS            # (head, tile of keys, tiles of queries, how many of them are done)
    order = len(events)
    while events:
        now, _, p = heapq.heappop(events)
        if at[p] is None:
            if taken == len(tasks):
                end = max(end, now)
                continue
            head, tile = tasks[taken]
            taken += 1
            way = list(queries_of(tile, tiles_q, causal))
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
    return busy / (PROCESSORS * end), end


def main():
    seen = float(sys.argv[1]) if len(sys.argv) > 1 else 1.5
    print(f"A part is seen {seen:g} us after it is added; {PROCESSORS} multiprocessors; 16384 tokens, 2048 columns.\n")
    print("| heads of | rows | causal | heads at once | ordered | no order | two sweeps, time of one |")
    print("|---|---|---|---|---|---|---|")
    for size, flops in ((128, 510e12), (64, 440e12)):
        step = 10 * 64 * 128 * size / (flops / PROCESSORS) * 1e6
        for rows in (2048, 4096, 8192, 16384):
            heads = 16384 // rows * (2048 // size)
            fit = max(1, (32 << 20) // (rows * (4 * size + 4 * size)))
            for causal in (False, True):
                for section in sorted({1, min(heads, fit), min(heads, 4 * fit), heads}):
                    share, end = simulate(heads, rows, causal, section, step, seen)
                    free, _ = simulate(heads, rows, causal, section, step, seen, ordered=False)
                    two = sum(simulate(heads, rows, causal, section, step * part, seen, ordered=False)[1]
                              for part in (3 / 5, 4 / 5))
                    print(f"| {size} | {rows} | {'yes' if causal else 'no'} | {section} | {share:.3f} | {free:.3f} | "
                          f"{two / end:.2f} |", flush=True)


if __name__ == "__main__":
    main()
