"""A function in a process of its own, which answers through a pipe and may raise, die or hang: whoever asks is told so
and goes on. Linux. `python3 bench/forked.py` tries it on processes that do all that; `make check` runs this."""
import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1  # prctl: the signal that comes when the parent has ended
PATIENCE = 2  # seconds that a process which is told to end may take to do so


class Failed(Exception):
    """What became of the process."""


class Hung(Failed):
    """It does not answer."""


class Forked:
    """function(pipe, *args), called in a copy of this process: nothing is sent to it, all that is here is there."""
    running = []

    def __init__(self, function, *args):
        self.pipe, theirs = multiprocessing.Pipe()
        Forked.running.append(self)
        self.process = multiprocessing.get_context("fork").Process(daemon=True, target=Forked.live,
                                                                   args=(theirs, function, args))
        try:
            self.process.start()
        except OSError as e:
            Forked.running.remove(self)
            raise Failed(f"no process could be made: {e}") from None
        finally:
            theirs.close()

    @staticmethod
    def live(theirs, function, args):
        os.setpgid(0, 0)  # the processes that it starts end with it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one that dies leaves no file behind
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")  # where memory runs out it is this process that the system ends
        for one in Forked.running:  # a pipe is closed when nobody holds its other end, and a copy of this process does
            one.pipe.close()
        try:
            function(theirs, *args)
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            pass  # nobody asks any more
        except Exception as e:
            theirs.send(e if isinstance(e, Failed) else Failed(f"{type(e).__name__}: {e}"))
        os._exit(0)

    def hear(self, limit):
        """Its answer, or what became of it; after so many seconds it counts as hung."""
        try:
            if not self.pipe.poll(limit):
                raise Hung(f"no answer within {limit:.0f} s")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            code = self.process.exitcode
            raise Failed("its process ended" if not code else f"its process ended with status {code}" if code > 0 else
                         f"its process was ended by {signal.Signals(-code).name}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, question, limit):
        with contextlib.suppress(OSError):  # it has ended: hear says how
            self.pipe.send(question)
        return self.hear(limit)

    def end(self):
        """It and all that it has started are gone when this returns."""
        Forked.running.remove(self)
        self.pipe.close()
        multiprocessing.connection.wait([self.process.sentinel], PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its number is its own until it is joined
        self.process.kill()
        self.process.join()
        self.process.close()


# ---- a trial
def echo(pipe):
    while True:
        pipe.send(pipe.recv() + 1)


def misbehave(pipe, how):
    pipe.send("ready")
    if how == "raises":
        pipe.recv()
        raise ValueError("no such shape")
    pipe.recv()
    if how == "dies":
        ctypes.string_at(0)
    if how == "exits":
        os._exit(3)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    os.fork()  # hangs, and so does one that it started
    while True:
        time.sleep(1)


def trial():
    """What is not as it should be."""
    expected = {"raises": "ValueError: no such shape", "dies": "its process was ended by SIGSEGV",
                "exits": "its process ended with status 3", "hangs": "no answer within 1 s"}
    seen, held = os.pipe()  # all processes hold the one end: the other ends when they are gone
    good, wrong = Forked(echo), []
    bad = {how: Forked(misbehave, how) for how in expected}
    os.close(held)
    for how, process in bad.items():
        said = process.hear(10)
        try:
            said = process.ask("go on", 1)
        except Failed as e:
            said = str(e)
        if said != expected[how]:
            wrong.append(f"one that {how}: {said}")
    if good.ask(1, 10) != 2:
        wrong.append("the others do not go on")
    for process in list(Forked.running):
        process.end()
    if not select.select([seen], [], [], 10)[0]:
        wrong.append("processes are left")
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(trial()) or 0)
