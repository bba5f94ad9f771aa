#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our all-reduce over soft RoCE beside the same exchange in raw verbs and beside Open MPI over TCP.

Starts an emulated machine (tests/vm/run.sh) and runs in it, interleaved: `rocenante perf all_reduce --transport verbs`,
build/release/bin/verbs_exchange, which copies into the send slot and adds out of the receive slots without any
protocol, and Open MPI over TCP between the addresses of the same interface, all on one rail. Times are the slowest
rank's median over calls whose send buffer was rewritten before each. The adapter is software on the machine's own two
emulated processors: only ratios within one run mean anything.

    scripts/deps.sh --peers
    bench/peers/verbs_compare.py
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build", "release")
RAW_BAR = 1.25  # of the raw exchange's time
TCP_MOST = 49152  # up to here ours must be ahead of Open MPI over TCP
OPENMPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated", "--mca", "pml", "ob1",
           "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "v0"]


def calls_of(size, iterations):
    return iterations if size < 32768 else max(iterations // 5, 10)


def output_of(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=dict(os.environ, **environment))
    if done.returncode != 0:
        sys.exit(f"verbs_compare.py: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(args, ranks, size):
    text = output_of([os.path.join(BUILD, "bin", "rocenante"), "perf", "all_reduce", "--ranks", str(ranks), "--transport",
                      "verbs", "--fresh", "-b", str(size), "-e", str(size), "-n", str(calls_of(size, args.iterations)), "-w",
                      str(args.warmup), "-c", "1", "-d", "float", "-o", "sum", "--json", "-"])
    return next(row["time_us"]["p50"] for row in map(json.loads, text.splitlines()) if not row["in_place"])


def one_line(name, text):
    _, p50, wrong = text.split()
    if int(wrong) != 0:
        sys.exit(f"verbs_compare.py: {name} returned wrong sums")
    return float(p50)


def raw(args, ranks, size, looks):
    return one_line("raw verbs", output_of([os.path.join(BUILD, "bin", "verbs_exchange"), "rxe0", "1", str(looks),
                                            str(ranks), str(calls_of(size, args.iterations)), str(args.warmup), str(size)]))


def openmpi(args, ranks, size):
    command = OPENMPI + ["-n", str(ranks), "--bind-to", "core" if ranks <= os.cpu_count() else "none"]
    if ranks > os.cpu_count():
        command += ["--mca", "mpi_yield_when_idle", "1"]
    return one_line("Open MPI", output_of(command + [args.mpi_program, str(calls_of(size, args.iterations)),
                                                     str(args.warmup), str(size)]))


def measure(args, ranks, sizes):
    systems = {"ours": ours, "openmpi": openmpi}
    # The faster of two ways to wait is the one to compare with, and which it is differs.
    for looks in args.looks.split(","):
        systems[f"raw/{looks}"] = lambda a, r, s, looks=looks: raw(a, r, s, looks)
    if args.no_mpi:
        del systems["openmpi"]
    rounds = []
    for number in range(args.rounds):
        order = list(systems) if number % 2 == 0 else list(reversed(systems))
        rounds.append({size: {name: systems[name](args, ranks, size) for name in order
                              if name != "openmpi" or size <= TCP_MOST} for size in sizes})
    return rounds


def report(ranks, sizes, rounds):
    print(f"all-reduce, fp32 sum, {ranks} ranks on {os.cpu_count()} emulated processors, one rail, fresh buffers, out of "
          f"place; us, p50 of the slowest rank, median of {len(rounds)} interleaved rounds")
    names = list(rounds[0][sizes[0]])
    print(f"{'bytes':>9} " + " ".join(f"{name:>10}" for name in names) + "  ours/raw (min-max)        ours/openmpi (min-max)")
    missed = 0
    for size in sizes:
        cells = [cells[size] for cells in rounds]
        text = f"{size:9d} " + " ".join(f"{statistics.median(c[n] for c in cells):10.1f}" if n in cells[0] else f"{'-':>10}"
                                        for n in names)
        best = min((n for n in names if n.startswith("raw")), key=lambda n: statistics.median(c[n] for c in cells))
        for rival, bar in ((best, RAW_BAR), ("openmpi", 1.0)):
            if rival not in cells[0]:
                continue
            ratios = [c["ours"] / c[rival] for c in cells]
            middle = statistics.median(ratios)
            met = middle <= bar if rival != "openmpi" else middle < bar
            missed += not met
            text += f"  {middle:5.2f} ({min(ratios):.2f}-{max(ratios):.2f}) {'met' if met else 'MISSED':>6}"
        print(text, flush=True)
    return missed


def on_the_host(args):
    folder = os.path.join(BUILD, "peers")
    os.makedirs(folder, exist_ok=True)
    program = os.path.join(folder, "openmpi")
    if not args.no_mpi:
        if shutil.which("mpicc.openmpi") is None:
            sys.exit("verbs_compare.py: mpicc.openmpi is not installed: run scripts/deps.sh --peers, or say --no-mpi")
        subprocess.run(["mpicc.openmpi", "-O3", os.path.join(HERE, "mpi_allreduce.c"), "-o", program], check=True)
    os.execv(os.path.join(ROOT, "tests", "vm", "run.sh"),
             ["run.sh", "--memory", "3072", "--timeout", "3600", "--", os.path.abspath(__file__), "--mpi-program", program]
             + sys.argv[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=500, help="a fifth from 32 KiB")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--sizes", default="8,64,1024,4096,16384,49152,262144")
    parser.add_argument("--looks", default="0,1", help="how often the raw exchange looks at memory before it yields, 0: it "
                        "never does; the best counts")
    parser.add_argument("--no-mpi", action="store_true", help="leave Open MPI out")
    parser.add_argument("--mpi-program", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.mpi_program is None:
        on_the_host(args)
    sizes = [int(size) for size in args.sizes.split(",")]
    missed = 0
    for ranks in map(int, args.ranks.split(",")):
        missed += report(ranks, sizes, measure(args, ranks, sizes))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
