#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our all-reduce over soft RoCE beside the same exchange in raw verbs and beside Open MPI over TCP.

Starts an emulated machine (tests/vm/run.sh) and runs in it, interleaved: `rocenante perf all_reduce --transport verbs`,
build/release/bin/verbs_exchange, which copies into the send slot and adds out of the receive slots without any
protocol, and Open MPI over TCP between the addresses of the same interface, all on one rail. Times are the slowest
rank's median over calls whose send buffer was rewritten before each, the median over the rounds. The adapter is
software on the machine's own two emulated processors: only ratios within one run mean anything, on a quiet host.

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


def sizes_of(spans):
    """'8-512x8,49152' is 8, 64, 512 and 49152; ours measures a span in one run."""
    result = []
    for span in spans.split(","):
        first, _, rest = span.partition("-")
        last, _, factor = rest.partition("x")
        size = int(first)
        result.append([size])
        while rest and size * int(factor) <= int(last):
            size *= int(factor)
            result[-1].append(size)
    return result


def output_of(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=dict(os.environ, **environment))
    if done.returncode != 0:
        sys.exit(f"verbs_compare.py: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(args, ranks):
    result = {}
    for span in sizes_of(args.sizes):
        factor = span[1] // span[0] if len(span) > 1 else 2
        text = output_of([os.path.join(BUILD, "bin", "rocenante"), "perf", "all_reduce", "--ranks", str(ranks),
                          "--transport", "verbs", "--fresh", "-b", str(span[0]), "-e", str(span[-1]), "-f", str(factor),
                          "-n", str(args.iterations), "-w", str(args.warmup), "-c", "1", "-d", "float", "-o", "sum", "--json", "-"],
                         NCCL_IB_HCA="=rxe0")
        for row in map(json.loads, text.splitlines()):
            if row["wrong"] != 0:
                sys.exit(f"verbs_compare.py: ours returned wrong sums at {row['bytes']} bytes")
            if not row["in_place"]:
                result[row["bytes"]] = row["time_us"]["p50"]
    return result


def rival(args, command, most=None):
    sizes = sorted(size for span in sizes_of(args.sizes) for size in span if most is None or size <= most)
    result = {}
    for line in output_of(command + [str(args.iterations), str(args.warmup)] + [str(size) for size in sizes]).splitlines():
        size, p50, wrong = line.split()
        if int(wrong) != 0:
            sys.exit(f"verbs_compare.py: {command[0]} returned wrong sums at {size} bytes")
        result[int(size)] = float(p50)
    return result


def raw(args, ranks, looks):
    return rival(args, [os.path.join(BUILD, "bin", "verbs_exchange"), "rxe0", "1", looks, str(ranks)])


def openmpi(args, ranks):
    command = OPENMPI + ["-n", str(ranks), "--bind-to", "core" if ranks <= os.cpu_count() else "none"]
    if ranks > os.cpu_count():
        command += ["--mca", "mpi_yield_when_idle", "1"]
    return rival(args, command + [args.mpi_program], TCP_MOST)


def measure(args, ranks):
    systems = {"ours": ours, "openmpi": openmpi}
    # The fastest way to wait is the one to compare with, and which it is differs.
    for looks in args.looks.split(","):
        systems[f"raw/{looks}"] = lambda a, r, looks=looks: raw(a, r, looks)
    if args.no_mpi or min(min(span) for span in sizes_of(args.sizes)) > TCP_MOST:
        del systems["openmpi"]
    rounds = []
    for number in range(args.rounds):
        # The order turns from round to round, so that a machine that slows down hits each alike.
        order = list(systems) if number % 2 == 0 else list(reversed(systems))
        rounds.append({name: systems[name](args, ranks) for name in order})
    return list(systems), rounds


def report(ranks, names, rounds):
    print(f"all-reduce, fp32 sum, {ranks} ranks on {os.cpu_count()} emulated processors, one rail, fresh buffers, out of "
          f"place; us, p50 of the slowest rank, median of {len(rounds)} interleaved rounds; ratio within a round, its median "
          "and (least to greatest)")
    print(f"{'bytes':>9} " + " ".join(f"{name:>9}" for name in names) + "  ours to raw                    ours to openmpi")
    missed = 0
    for size in sorted(rounds[0]["ours"]):
        middle = {name: statistics.median(cells[name][size] for cells in rounds) for name in names if size in rounds[0][name]}
        text = f"{size:9d} " + " ".join(f"{middle[name]:9.1f}" if name in middle else f"{'-':>9}" for name in names)
        best = min((name for name in middle if name.startswith("raw")), key=middle.get)
        for other in [best] + ["openmpi"] * ("openmpi" in middle):
            ratios = [cells["ours"][size] / cells[other][size] for cells in rounds]
            ratio = statistics.median(ratios)
            met = ratio <= RAW_BAR if other == best else ratio < 1
            missed += not met
            text += f"  {ratio:5.2f} ({min(ratios):6.2f}-{max(ratios):6.2f}) {'met' if met else 'MISSED':>6}"
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
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--sizes", default="8-262144x8,49152", help="FIRST-LASTxFACTOR or a number, a comma list")
    parser.add_argument("--looks", default="0,1", help="how often the raw exchange looks at memory before it yields, 0: it "
                        "never does; the best counts")
    parser.add_argument("--no-mpi", action="store_true", help="leave Open MPI out")
    parser.add_argument("--mpi-program", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.mpi_program is None:
        on_the_host(args)
    missed = 0
    for ranks in map(int, args.ranks.split(",")):
        missed += report(ranks, *measure(args, ranks))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
