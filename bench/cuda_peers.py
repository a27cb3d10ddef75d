#!/usr/bin/env python3
"""attn_cuda.cuh beside cuDNN and PyTorch's own kernels on the same GPU: `make bench-cuda` runs this where PyTorch sees
a device, and with ARGS=--markdown it writes what a file like bench/h100.md holds.

All of a row read the same inputs and take their samples in turn, so that clocks drift for all alike: CUDA events around
calls that take some milliseconds together, medians. First each result, of all queries and keys of one head, is held
against float64; who is wrong is not timed. Backward is the backward alone. A causal row counts half the operations.
With dropout each drops other weights: PyTorch's results are checked without it and timed with it.

The rows (cuda_rows.py) are measured in a process of its own. One that dies or hangs is named in its row, and another
one goes on with the next; where time runs out the rows that are missing are named. The markdown is written in any case.
Exit status 1: a row of ours is wrong or has no result."""
import argparse
import json
import os
import signal
import sys
import time
from forked import Failed, Forked, Hung

OURS, COPY = "attn_cuda", "a copy"
FEW = 4  # names of rows in a sentence
LIMIT, LIMIT_COMPILING = 60, 180  # seconds for a row
START = 180  # and until the first

ABOUT = """\
What `make bench-cuda ARGS=--markdown` printed. Rates are of q, k and v in bf16 where nothing else is said, medians of
rounds in which all take their samples in turn; a causal row counts half the operations, a decode the bytes of k and v.
Ratio: the rate of attn_cuda.cuh over that of the best peer, so that above 1 it is faster. Errors: of out or, in a
backward, of that of out, dq, dk and dv which is furthest off, all of one head, relative to the norm of float64's. The
peers are what PyTorch's scaled_dot_product_attention runs: cuDNN, its flash kernel (FlashAttention-2), its
memory-efficient one; where these have no such option FlexAttention, compiled, or eager PyTorch; of a product of
matrices, ours with ATTN_PRECISION_FAST, torch.matmul (of 16 rows: the bytes of the other factor). "A copy": device to
device, of as many bytes read and written. d128: heads of 128 numbers; 2k: 2048 queries and keys; decode 32 x 32/8: 32
sequences, 32 heads on 8 heads of keys."""


def process(pipe, texts, compiling):
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # this process may not start others
    import cuda_rows  # here, so that nothing of CUDA is in this process's parent
    cuda_rows.answer(pipe, texts, compiling)


class Run:
    """What has been measured, and what became of the rest."""

    def __init__(self, options):
        self.options, self.start = options, time.monotonic()
        self.machine, self.names, self.found, self.failed, self.reason = ("", ""), [], {}, {}, ""

    def left(self, limit):
        return max(0.1, min(limit, self.start + self.options.seconds - time.monotonic()))

    def over(self):
        return time.monotonic() >= self.start + self.options.seconds

    def begin(self, function):
        """A process that has told which rows there are; None: it could not, or no time is left."""
        if self.over():
            return None
        one = Forked(function, self.options.rows, self.options.flex)
        try:
            self.machine, self.names = one.hear(self.left(START))
            return one
        except Failed as e:
            one.end()
            self.reason = "" if self.over() else str(e)
            return None

    def measure(self, function, tell):
        one = self.begin(function)
        if one:
            tell(", ".join(self.machine))
        limit, n = LIMIT_COMPILING if self.options.flex else LIMIT, 0
        while one and n < len(self.names) and not self.over():
            name = self.names[n]
            try:
                self.found[name] = one.ask(n, self.left(limit))
                tell(in_words(self.found[name]), self.found[name])
            except Failed as e:
                one.end()
                if isinstance(e, Hung) and self.over():
                    return
                self.failed[name] = str(e)
                tell(f"{name:36} NO RESULT: {e}")
                one = self.begin(function) if n + 1 < len(self.names) else None
            n += 1
        if one:
            one.end()

    def right(self):
        """Whether each row that was reached has a result of ours."""
        return bool(self.found) and not self.failed and not self.reason and all(
            OURS in found["rate"] for found in self.found.values())


def best_peer(found):
    peers = [name for name in found["rate"] if name not in (OURS, COPY)]
    return max(peers, key=found["rate"].get, default=None)


def ratio_of(found, peer):
    ours, theirs = found["rate"].get(OURS), found["rate"].get(peer)
    return ours / theirs if ours and theirs else None


def slower(found):
    ratio = ratio_of(found, best_peer(found))
    return ratio is not None and round(ratio, 2) < 1


def in_words(found):
    """A row for the terminal. ~: after some calls so far behind that it was measured no further."""
    rates = [f"{name} {'~' if name in found['few'] else ''}{rate:.1f}" for name, rate in found["rate"].items()]
    rates += [f"{name} -" for name in found["absent"]]
    ratio = ratio_of(found, best_peer(found))
    if ratio:
        rates.append(f"ours {ratio:.2f}x the best peer, errors {found['error'][OURS]:.1e} and "
                     f"{found['error'][best_peer(found)]:.1e}")
    rates += [f"WRONG: {name}, error {error:.1e}" for name, error in found["wrong"].items()]
    return f"{found['row']:36} {found['unit']:8} {'  '.join(rates)}"


# ---- markdown
def number(x, form):
    return "-" if x is None else format(x, form)


def lines_of(found):
    peer, error = best_peer(found), found["error"]
    said = "WRONG" if OURS in found["wrong"] else "no result" if OURS not in found["rate"] else \
        "slower" if slower(found) else ""
    cells = [found["row"], found["unit"], number(found["rate"].get(OURS), ".1f"), peer or "-",
             number(found["rate"].get(peer), ".1f"), number(ratio_of(found, peer), ".2f"),
             number(error.get(OURS, found["wrong"].get(OURS)), ".1e"), number(error.get(peer), ".1e"), said]
    yield "| " + " | ".join(cells) + " |"
    if COPY in found["rate"]:
        yield f"|  |  |  | {COPY} | {found['rate'][COPY]:.1f} | {number(ratio_of(found, COPY), '.2f')} |  |  |  |"


def remarks(run):
    """What the table does not say, in sentences."""
    rows = run.found.values()
    behind = sorted((ratio_of(r, best_peer(r)), r["row"]) for r in rows if slower(r))
    if behind:
        yield f"Slower than the best peer in {len(behind)} of {sum(best_peer(r) is not None for r in rows)} rows: " + \
            ", ".join(f"{name} ({ratio:.2f})" for ratio, name in behind)
    reasons = {}
    for r in rows:
        for name, why in r["absent"].items():
            reasons.setdefault((name, why), []).append(r["row"])
        for name, error in r["wrong"].items():
            yield f"WRONG: {name} in {r['row']}, error {error:.1e}"
    for (name, why), names in reasons.items():
        more = f" and {len(names) - FEW} more rows" if len(names) > FEW else ""
        yield f"{name} took no part in {', '.join(names[:FEW])}{more}: {why}"
    for name, why in run.failed.items():
        yield f"No result: {name}: {why}"
    if run.reason:
        yield f"It ended early: {run.reason}"
    missing = [name for name in run.names if name not in run.found and name not in run.failed]
    if missing:
        yield f"Not measured, as the time was up: {', '.join(missing)}"


def markdown(run):
    commit = os.environ.get("COMMIT", "unknown")
    yield from (f"# attn_cuda.cuh beside its peers: {run.machine[0]}", "", ABOUT, "",
                f"{run.machine[0]}; attn_cuda.cuh {commit}, {run.machine[1]}; {time.strftime('%Y-%m-%d')}", "",
                "| work | unit | attn_cuda | best peer | its rate | ratio | error | its error |  |",
                "|---|---|---|---|---|---|---|---|---|")
    for name in run.names:
        if name in run.found:
            yield from lines_of(run.found[name])
        elif name in run.failed:
            yield f"| {name} | - | - | - | - | - | - | - | no result |"
    yield from (f"\n{remark}." for remark in remarks(run))


def write_markdown(run):
    text = "\n".join(markdown(run)) + "\n"
    if run.options.markdown == "-":
        sys.stdout.write(text)
        return
    with open(run.options.markdown + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(f.name, run.options.markdown)


def stop(*_):
    raise KeyboardInterrupt


def main(arguments=None, function=process):
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--rows", nargs="+", action="extend", default=[], metavar="TEXT",
                        help="rows whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=1800, help="for all of it; the rows that tell most come first")
    parser.add_argument("--flex", action="store_true", help="FlexAttention, too, which takes long to compile")
    parser.add_argument("--json", action="store_true", help="one object a row")
    parser.add_argument("--markdown", nargs="?", const="-", metavar="FILE", help="a file like bench/h100.md")
    run = Run(parser.parse_args(arguments))
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    told = sys.stderr if run.options.markdown == "-" or run.options.json else sys.stdout

    def tell(line, found=None):
        print(line, file=told, flush=True)
        if run.options.json and found:
            print(json.dumps(found), flush=True)
        if run.options.markdown not in (None, "-"):
            write_markdown(run)
    try:
        run.measure(function, tell)
    except KeyboardInterrupt:
        run.reason = "it was stopped"
    finally:
        if run.options.markdown:
            write_markdown(run)
        for remark in remarks(run):
            print(remark, file=told)
        right = sum(OURS in found["rate"] for found in run.found.values())
        print(f"{right} rows right, {len(run.found) - right + len(run.failed)} wrong or without a result, "
              f"{time.monotonic() - run.start:.0f} s", file=told)
    return 0 if run.right() else 1


if __name__ == "__main__":
    sys.exit(main())
