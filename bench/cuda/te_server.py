"""TransformerEngine's side of the benchmarks beside it: python3 te_server.py PART SIZE...

PART is the name of a module te_PART.py of this folder, whose `cases(*sizes)` yields names and functions that run a case once. The
program prints its version and the names as one JSON line. It then answers each line "NAME<TAB>CALLS" with the seconds per call;
the GPU is synchronized before the first and after the last call. It answers "NAME<TAB>CALLS<TAB>host" with the seconds per call
until the calls returned, and "NAME<TAB>CALLS<TAB>gpu" with the seconds per call on the GPU, which first waits until all calls are
enqueued. With --kernels, the part `engine` prints the GPU time of each kernel of a step instead, and exits.
"""

import importlib
import json
import os
import sys
import time

import torch
import transformer_engine

# as long as a GPU sleeps while calls are enqueued, in its clock cycles: about 50 ms
SLEEP = 100_000_000


def seconds_of(run, calls, clock):
    if clock == "gpu":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SLEEP)
        start.record()
        for i in range(calls):
            run(i)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000 / calls
    begin = time.perf_counter()
    for i in range(calls):
        run(i)
    if clock == "all":
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / calls
    torch.cuda.synchronize()
    return seconds


def main():
    # what libraries print goes to stderr, so that stdout has the answers only
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    part, *sizes = (each for each in sys.argv[1:] if each != "--kernels")
    module = importlib.import_module(f"te_{part}")
    if "--kernels" in sys.argv:
        return module.kernels(*map(int, sizes))
    cases = dict(module.cases(*map(int, sizes)))
    notes = getattr(module, "NOTES", [])
    version = ", ".join([f"TransformerEngine {transformer_engine.__version__}, torch {torch.__version__}", *notes])
    print(json.dumps({"version": version, "cases": list(cases)}), file=answers, flush=True)
    for line in sys.stdin:
        name, calls, *clock = line.rstrip("\n").split("\t")
        torch.cuda.synchronize()
        print(json.dumps(seconds_of(cases[name], int(calls), clock[0] if clock else "all")), file=answers, flush=True)


main()
