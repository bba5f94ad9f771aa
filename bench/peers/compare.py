#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our all-reduce beside Debian's Open MPI and MPICH, interleaved on one machine.

Every round runs each system once, one after the other, for every size; the ratio of a cell is ours to the better
peer's within the same round, and the median over the rounds is printed. Times are the slowest rank's median over calls
whose send buffer was rewritten before each.

    scripts/deps.sh --peers
    bench/peers/compare.py --ranks 2
    bench/peers/compare.py --ranks 2 --transport tcp
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS = {"openmpi": ("mpicc.openmpi", "mpirun.openmpi"), "mpich": ("mpicc.mpich", "mpirun.mpich"),
         "openmpi-bound": ("mpicc.openmpi", "mpirun.openmpi")}
ATTEMPTS = 10
# What the project owes on such a machine: our time over the better peer's, by transport, ranks and bytes.
BARS = {
    "auto": {
        2: {8: 0.80, 64: 0.75, 1024: 0.75, 16384: 0.75, 49152: 0.75, 262144: 0.75},
        4: {8: 0.90, 64: 0.90, 1024: 0.90, 16384: 0.90},
        8: {8: 0.90, 64: 0.90, 1024: 0.90, 16384: 0.90},
    },
    "tcp": {2: {8: 0.85, 64: 0.85, 1024: 0.85, 16384: 0.85, 49152: 0.85, 262144: 0.85}},
}
# What keeps the peers off shared memory. All traffic stays on loopback.
OPENMPI_TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
TCP_ENVIRONMENT = {
    "UCX_TLS": "tcp,self",  # MPICH's ch4:ucx
    "UCX_NET_DEVICES": "lo",
    "FI_PROVIDER": "tcp",  # and its ch4:ofi
    "MPIR_CVAR_NOLOCAL": "1",
    "ROCENANTE_SOCKET_IFNAME": "=lo",
}


def build_peer(name, folder):
    compiler = PEERS[name][0]
    if shutil.which(compiler) is None:
        sys.exit(f"compare.py: {compiler} is not installed: run scripts/deps.sh --peers")
    program = os.path.join(folder, name)
    subprocess.run([compiler, "-O3", "-march=native", os.path.join(HERE, "mpi_allreduce.c"), "-o", program], check=True)
    return program


def environment(transport):
    return dict(os.environ, **TCP_ENVIRONMENT) if transport == "tcp" else None


def peer_command(name, program, ranks, transport, iterations, warmup, sizes):
    command = [PEERS[name][1], "-n", str(ranks)]
    if name.startswith("openmpi"):
        binding = "core" if ranks <= os.cpu_count() else "core:overload-allowed" if name == "openmpi-bound" else "none"
        command += ["--allow-run-as-root", "--oversubscribe", "--bind-to", binding]
        if ranks > os.cpu_count():
            command += ["--mca", "mpi_yield_when_idle", "1"]
        if transport == "tcp":
            command += OPENMPI_TCP
    if name == "mpich" and ranks <= os.cpu_count():
        command += ["-bind-to", "core"]
    return command + [program, str(iterations), str(warmup)] + [str(size) for size in sizes]


def output_of_peer(name, command, transport, seconds):
    """What it prints. One that hangs, as MPICH over tcp does now and then, is started again, and it is said."""
    for _ in range(ATTEMPTS):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment(transport)) as running:
            try:
                out, errors = running.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                print(f"compare.py: {name} did not end in {seconds} s and is started again", file=sys.stderr)
                running.terminate()  # mpirun ends its ranks
                try:
                    running.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    running.kill()
                continue
        if running.returncode != 0:
            sys.exit(f"compare.py: {name} failed:\n{errors}")
        return out
    sys.exit(f"compare.py: {name} hangs")


def run_peer(args, name, program, sizes):
    command = peer_command(name, program, args.ranks, args.transport, args.iterations, args.warmup, sizes)
    out = output_of_peer(name, command, args.transport, args.peer_seconds)
    result = {}
    for line in out.splitlines():
        bytes_, p50, wrong = line.split()
        if int(wrong) != 0:
            sys.exit(f"compare.py: {name} returned wrong sums at {bytes_} bytes")
        result[int(bytes_)] = float(p50)
    return result


def run_ours(binary, ranks, transport, iterations, warmup, sizes):
    result = {}
    for size in sizes:
        calls = iterations
        while calls > 10 and calls * size > 2e9:
            calls //= 2
        done = subprocess.run(
            [binary, "perf", "all_reduce", "--ranks", str(ranks), "--transport", transport, "--fresh", "-b", str(size),
             "-e", str(size), "-n", str(calls), "-w", str(warmup), "-c", "1", "-d", "float", "-o", "sum", "--json", "-"],
            capture_output=True, text=True, timeout=1800, env=environment(transport))
        if done.returncode != 0:
            sys.exit(f"compare.py: rocenante failed:\n{done.stderr}")
        for line in done.stdout.splitlines():
            row = json.loads(line)
            if not row["in_place"]:
                result[row["bytes"]] = row["time_us"]["p50"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=["auto", "tcp"], default="auto", help="tcp: ours and the peers' over TCP "
                        "on the loopback interface")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--sizes", default="8,64,1024,16384,49152,262144,1048576")
    parser.add_argument("--peers", default="openmpi,mpich", help="comma list; MPICH does not yield and takes "
                        "milliseconds a call with more ranks than processors, so leave it out there")
    parser.add_argument("--peer-seconds", type=int, default=300, help="a peer's run that takes longer is taken for one "
                        "that hangs, and started again")
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bin", "rocenante"))
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    names = args.peers.split(",")
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: build_peer(name, folder) for name in names}
        rounds = []
        for number in range(args.rounds):
            # The order turns from round to round, so that a machine that slows down hits each alike.
            cells = {}
            order = ["ours"] + names if number % 2 == 0 else names + ["ours"]
            for name in order:
                if name == "ours":
                    cells[name] = run_ours(args.binary, args.ranks, args.transport, args.iterations, args.warmup, sizes)
                else:
                    cells[name] = run_peer(args, name, programs[name], sizes)
            rounds.append(cells)
    report(args, names, sizes, rounds)


def report(args, names, sizes, rounds):
    print(f"all-reduce, fp32 sum, transport {args.transport}, {args.ranks} ranks on {os.cpu_count()} processors, fresh buffers, out of place; "
          f"us, p50 of the slowest rank, median of {len(rounds)} interleaved rounds")
    print(f"{'bytes':>9} {'ours':>10} " + " ".join(f"{name:>10}" for name in names) + f" {'ratio':>7} {'min':>6} {'max':>6}  bar")
    missed = 0
    for size in sizes:
        ratios = [cells["ours"][size] / min(cells[name][size] for name in names) for cells in rounds]
        middle = statistics.median(ratios)
        bar = BARS[args.transport].get(args.ranks, {}).get(size)
        verdict = "" if bar is None else f"{bar:.2f} {'met' if middle <= bar else 'MISSED'}"
        missed += bar is not None and middle > bar
        columns = " ".join(f"{statistics.median(cells[name][size] for cells in rounds):10.3f}" for name in names)
        ours = statistics.median(cells["ours"][size] for cells in rounds)
        print(f"{size:9d} {ours:10.3f} {columns} {middle:7.2f} {min(ratios):6.2f} {max(ratios):6.2f}  {verdict}")
    return missed


if __name__ == "__main__":
    main()
