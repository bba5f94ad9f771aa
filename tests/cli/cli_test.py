#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as a user does and looks at what comes out.

Usage: cli_test.py PROGRAM FAULT_LIBRARY [unittest arguments]; FAULT_LIBRARY is "none" to skip its tests.
"""
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = ""
FAULT = ""
TIMEOUT_S = 120
TYPES = "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2".split()
OPS = "sum prod max min avg mulsum".split()


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROCENANTE_", "NCCL_", "OMPI_"))}
    env.update(extra)
    return env


def run(*arguments, **extra):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=environment(**extra), stdin=subprocess.DEVNULL)


def perf(*arguments, **extra):
    return run("perf", "all_reduce", *arguments, **extra)


def start(*arguments, **extra):
    return subprocess.Popen([PROGRAM, "perf", "all_reduce", *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(**extra), stdin=subprocess.DEVNULL,
                            start_new_session=True)


def rows(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def rank_of(pid):
    words = read(f"/proc/{pid}/cmdline").split(b"\0")
    return int(words[words.index(b"--launched") + 1].split(b":")[0])


def gone(pid):
    try:
        return read(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[0] in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


class Endless:
    """A run that lasts until something ends it, past its first row."""

    def __init__(self, ranks, *arguments, **extra):
        self.process = start("--ranks", ranks, "-b", "1K", "-e", "1M", "-i", "4", "-n", "500", *arguments, **extra)
        for line in self.process.stdout:
            if not line.startswith("#"):
                break
        self.ranks = {rank_of(pid): pid for pid in children(self.process.pid)}

    def finish(self):
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Help(unittest.TestCase):
    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^rocenante \d+\.\d+\.\d+ \(library \d+\.\d+\.\d+\)\n$")

    def test_help_on_all_levels(self):
        for arguments in (["--help"], ["perf", "--help"], ["perf", "all_reduce", "--help"], ["info", "-h"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
            self.assertIn("Usage: rocenante", result.stdout)
        # CLI11 shows a default as =8 or as [8], by its version.
        flags = re.sub(r" \[(\w+)\]", r"=\1", run("perf", "all_reduce", "--help").stdout)
        for flag in ("-b,--minbytes SIZE=8", "-e,--maxbytes SIZE=64M", "-f,--stepfactor NUMBER=2",
                     "-i,--stepbytes SIZE=0", "-n,--iters NUMBER=20", "-w,--warmup_iters NUMBER=5",
                     "-c,--check NUMBER=1", "-d,--datatype LIST=float", "-o,--op LIST=sum", "--ranks NUMBER=2",
                     "--transport NAME", "--fresh", "--json FILE", "--plot FILE.svg", "--rank NUMBER",
                     "--world NUMBER", "--rendezvous HOST:PORT", "Exit codes", *TYPES, *OPS):
            self.assertIn(flag, flags)
        self.assertNotIn("--launched", flags)

    def test_info(self):
        info = run("info")
        self.assertEqual((info.returncode, info.stderr), (0, ""))
        self.assertTrue(info.stdout.strip())
        config = run("info", "--config")
        self.assertEqual(config.returncode, 0)
        self.assertNotEqual(config.stdout, info.stdout)


class Table(unittest.TestCase):
    def test_rows_and_footer(self):
        result = perf("-b", 4, "-e", 64, "-d", "float,half", "-o", "sum,max", "-n", 3)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        found = rows(result.stdout)
        expected = [(bytes_, type_, op) for type_ in ("float", "half") for op in ("sum", "max")
                    for bytes_ in (4, 8, 16, 32, 64)]
        self.assertEqual([(int(row[0]), row[2], row[3]) for row in found], expected)
        for row in found:
            self.assertEqual(len(row), 13)
            self.assertEqual(int(row[1]) * (4 if row[2] == "float" else 2), int(row[0]))
            self.assertEqual((row[4], row[8], row[12]), ("-1", "0", "0"))
            self.assertGreater(float(row[5]), 0)
            self.assertGreater(float(row[9]), 0)
        self.assertIn("# Out of bounds values : 0 OK\n", result.stdout)
        self.assertRegex(result.stdout, r"# Avg bus bandwidth    : [0-9.e+-]+\n")
        self.assertRegex(result.stdout, r"# +size +count +type +redop +root +time +algbw +busbw +#wrong +time")
        self.assertIn("# ranks 2 transport ", result.stdout)

    def test_every_type_and_operator_on_an_odd_number_of_ranks(self):
        result = perf("--ranks", 3, "-b", 5, "-e", 10000, "-f", 40, "-d", "all", "-o", "all", "-n", 2, "-c", 2,
                      "--fresh")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        found = rows(result.stdout)
        self.assertEqual(len(found), len(TYPES) * len(OPS) * 3)
        self.assertEqual({(row[2], row[3]) for row in found}, {(t, o) for t in TYPES for o in OPS})
        self.assertEqual({row[8] for row in found} | {row[12] for row in found}, {"0"})

    def test_every_collective(self):
        factors = {"all_gather": 2 / 3, "reduce_scatter": 2 / 3, "broadcast": 1, "reduce": 1, "alltoall": 2 / 3}
        for collective, factor in factors.items():
            with self.subTest(collective), tempfile.TemporaryDirectory() as folder:
                rooted = collective in ("broadcast", "reduce")
                blocks = 1 if rooted else 3
                more = (["-r", 2] if rooted else []) + (["-o", "sum,mulsum"] if "reduce" in collective else [])
                result = run("perf", collective, "--ranks", 3, "-b", 5, "-e", "300K", "-f", 60, "-n", 2, "-c", 2, "-d",
                             "double,bfloat16", "--json", f"{folder}/out", *more)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn(f"perf {collective}\n", result.stdout)
                found = rows(result.stdout)
                for row in found:
                    self.assertEqual(int(row[0]), int(row[1]) * blocks * (8 if row[2] == "double" else 2))
                self.assertEqual({row[3] for row in found},
                                 {"sum", "mulsum"} if "reduce" in collective else {"none"})
                self.assertEqual({row[4] for row in found}, {"2" if rooted else "-1"})
                self.assertEqual({row[8] for row in found}, {"0"})
                self.assertEqual({row[12] for row in found}, {"N/A"} if collective == "alltoall" else {"0"})
                with open(f"{folder}/out", encoding="ascii") as file:
                    lines = [json.loads(line) for line in file]
                self.assertEqual({line["collective"] for line in lines}, {collective})
                self.assertEqual({line["in_place"] for line in lines},
                                 {False} if collective == "alltoall" else {False, True})
                for line in lines:
                    self.assertAlmostEqual(line["busbw_GBps"], line["algbw_GBps"] * factor)

    def test_large_calls(self):
        result = perf("-b", "8M", "-e", "8M", "-n", 2, "-w", 1, "-d", "float,bfloat16,int8")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([row[8] for row in rows(result.stdout)], ["0"] * 3)

    def test_sizes_below_one_element_are_empty_calls(self):
        result = perf("-b", 1, "-e", 4, "-n", 2)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([row[:2] for row in rows(result.stdout)], [["0", "0"], ["0", "0"], ["4", "1"]])

    def test_sizes_are_rounded_down_to_elements(self):
        result = perf("-b", 13, "-e", 21, "-i", 8, "-d", "double", "-n", 2)
        self.assertEqual([row[:2] for row in rows(result.stdout)], [["8", "1"], ["16", "2"]])

    def test_one_rank_has_no_bus_bandwidth(self):
        result = perf("--ranks", 1, "-e", 1024)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual({row[7] for row in rows(result.stdout)}, {"0.00"})
        self.assertEqual({row[8] for row in rows(result.stdout)}, {"0"})

    def test_more_ranks_than_processors(self):
        ranks = 2 * (os.cpu_count() or 1) + 3
        result = perf("--ranks", min(ranks, 16), "-b", 1024, "-e", 4096, "-f", 4, "-n", 3, "-w", 1)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([row[8] for row in rows(result.stdout)], ["0", "0"])

    def test_progress_is_for_terminals(self):
        leader, follower = pty.openpty()
        process = subprocess.run([PROGRAM, "perf", "all_reduce", "-e", "16", "-n", "2"], stdout=subprocess.PIPE,
                                 stderr=follower, env=environment(), timeout=TIMEOUT_S)
        os.close(follower)
        progress = os.read(leader, 65536)
        os.close(leader)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"\r", progress)
        self.assertNotIn(b"\r", process.stdout)


class Json(unittest.TestCase):
    def check(self, lines, ranks):
        for number, line in enumerate(lines):
            found = json.loads(line)
            self.assertEqual(list(found), ["collective", "bytes", "count", "dtype", "op", "ranks", "transport",
                                           "algorithm", "in_place", "iterations", "time_us", "algbw_GBps",
                                           "busbw_GBps", "wrong"])
            self.assertEqual(found["collective"], "all_reduce")
            self.assertEqual(found["ranks"], ranks)
            self.assertEqual(found["in_place"], number % 2 == 1)
            self.assertIsInstance(found["transport"], str)
            self.assertTrue(found["algorithm"])
            times = found["time_us"]
            self.assertEqual(list(times), ["min", "p50", "p90", "p99", "max"])
            self.assertEqual(sorted(times.values()), list(times.values()))
            self.assertGreater(times["min"], 0)
            self.assertAlmostEqual(found["algbw_GBps"], found["bytes"] / times["p50"] / 1e3)
            self.assertAlmostEqual(found["busbw_GBps"], found["algbw_GBps"] * 2 * (ranks - 1) / ranks)
            yield found

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.jsonl")
            with open(path, "w") as file:
                file.write("old\n" * 100)
            result = perf("--ranks", 3, "-b", 64, "-e", 128, "-d", "int8,float", "-n", 7, "--json", path)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            found = list(self.check(read(path).decode().splitlines(), 3))
            self.assertEqual(len(rows(result.stdout)), 4)
        self.assertEqual([(f["bytes"], f["count"], f["dtype"]) for f in found[::2]],
                         [(64, 64, "int8"), (128, 128, "int8"), (64, 16, "float"), (128, 32, "float")])
        self.assertEqual({(f["op"], f["iterations"], f["wrong"]) for f in found}, {("sum", 7, 0)})

    def test_standard_output(self):
        result = perf("-b", 64, "-e", 64, "-n", 2, "--json", "-")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(list(self.check(result.stdout.splitlines(), 2))), 2)
        self.assertEqual(len(rows(result.stderr)), 1)
        self.assertIn("# Out of bounds values : 0 OK", result.stderr)

    def test_unchecked(self):
        result = perf("-b", 64, "-e", 64, "-n", 2, "-c", 0, "--json", "-")
        self.assertEqual([f["wrong"] for f in self.check(result.stdout.splitlines(), 2)], [None, None])
        self.assertEqual(rows(result.stderr)[0][8], "N/A")

    def test_a_file_that_fails_while_written(self):
        result = perf("-b", 64, "-e", 64, "-n", 2, "--json", "/dev/full")
        self.assertEqual(result.returncode, 3)
        self.assertIn("--json '/dev/full': cannot be written: No space left on device", result.stderr)


    def test_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            process = start("--ranks", 2, "-b", 8, "-e", 8, "-n", 1, "--json", path)
            with open(path) as file:
                lines = file.read().splitlines()
            process.communicate(timeout=TIMEOUT_S)
            self.assertEqual((process.returncode, len(lines)), (0, 2))

    def test_statistics_at_the_end(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stats")
            result = perf("--ranks", 2, "-b", 8, "-e", 8, "-n", 3, "-w", 0, "-c", 0, ROCENANTE_STATS="1")
            lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
            self.assertEqual(sorted(line["rank"] for line in lines), [0, 1])
            perf("--ranks", 2, "-b", 8, "-e", 8, "-n", 3, "-w", 0, "-c", 0, ROCENANTE_STATS="1", ROCENANTE_STATS_FILE=path)
            with open(path) as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual(sorted(line["rank"] for line in lines), [0, 1])
            for line in lines:
                self.assertEqual(line["ranks"], 2)
                calls = [row for row in line["calls"] if row["path"] == "one_shot_inline" and row["up_to_bytes"] == 8]
                self.assertGreaterEqual(calls[0]["calls"], 6)  # beside those of the command's own barriers
                self.assertEqual(calls[0]["collective"], "all_reduce")


class Plot(unittest.TestCase):
    def test_document(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.svg")
            result = perf("-b", 8, "-e", 4096, "-d", "float,half", "-o", "sum,max", "-n", 2, "--plot", path)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            root = xml.etree.ElementTree.parse(path).getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, space + "svg")
        self.assertEqual(len(root.findall(space + "polyline")), 2 * 8)
        labels = [text.text for text in root.iter(space + "text")]
        for label in ("Latency", "Bus bandwidth", "size (bytes)", "bus bandwidth (GB/s)", "8B", "4KiB",
                      "time of the slowest rank, median (\u00b5s)", "float sum, out of place", "half max, in place"):
            self.assertIn(label, labels)


class BadInput(unittest.TestCase):
    def test_messages(self):
        cases = [
            ([], ["subcommand"]),
            (["prf"], ["COMMAND 'prf'", "perf, info or run"]),
            (["perf"], ["COLLECTIVE"]),
            (["perf", "all_scatter"], ["COLLECTIVE 'all_scatter'", "all_reduce, all_gather, reduce_scatter"]),
            (["perf", "all_gather", "-o", "max"], ["--op 'max'", "all_gather reduces nothing"]),
            (["perf", "all_gather", "-r", "1"], ["--root '1'", "all_gather has no root"]),
            (["perf", "reduce", "--root", "2"], ["--root '2'", "0 to 1"]),
            (["perf", "all_reduce", "--bogus"], ["--bogus"]),
            (["perf", "all_reduce", "-n"], ["--iters"]),
            (["info", "--bogus"], ["--bogus"]),
        ]
        for arguments, allowed in (
            (["-b", "12X"], ["--minbytes '12X'", "K, M or G"]),
            (["-e", "1.5M"], ["--maxbytes '1.5M'", "K, M or G"]),
            (["-b", "2M", "-e", "1M"], ["--minbytes '2M'", "--maxbytes '1M'"]),
            (["-b", "-5"], ["--minbytes '-5'"]),
            (["-f", "1"], ["--stepfactor '1'", "2 to"]),
            (["-f", "2", "-i", "8"], ["--stepbytes '8'", "--stepfactor"]),
            (["-n", "0"], ["--iters '0'", "1 to"]),
            (["-w", "x"], ["--warmup_iters 'x'"]),
            (["-c", "-1"], ["--check '-1'"]),
            (["-d", "float99"], ["--datatype 'float99'", *TYPES]),
            (["-d", ""], ["--datatype ''"]),
            (["-o", "xor"], ["--op 'xor'", *OPS]),
            (["--ranks", "0"], ["--ranks '0'", "1 to 1024"]),
            (["--ranks", "1025"], ["--ranks '1025'", "1 to 1024"]),
            (["--transport", "pigeon"], ["--transport 'pigeon'"]),
            (["--transport", "shm;A=B"], ["--transport 'shm;A=B'"]),
            (["--json", "/nonexistent/out"], ["--json '/nonexistent/out'", "No such file"]),
            (["--plot", "/"], ["--plot '/'", "directory"]),
            (["--json", "/tmp/x", "--plot", "/tmp/x"], ["--plot '/tmp/x'", "--json"]),
            (["--rank", "0"], ["--world", "--rendezvous"]),
            (["--rank", "2", "--world", "2", "--rendezvous", "127.0.0.1:1"], ["--rank '2'", "0 to 1"]),
            (["--rank", "0", "--world", "2", "--rendezvous", "here"], ["--rendezvous 'here'", "HOST:PORT"]),
            (["--rank", "0", "--world", "2", "--rendezvous", "h:1", "--ranks", "2"], ["--ranks '2'", "--world"]),
        ):
            cases.append((["perf", "all_reduce", *arguments], allowed))
        for arguments, allowed in cases:
            with self.subTest(" ".join(arguments)):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                for part in allowed:
                    self.assertIn(part, result.stderr)

    def test_nothing_is_left_behind_when_nothing_is_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.jsonl")
            result = perf("--json", path, "--plot", os.path.join(folder, "no", "out.svg"))
            self.assertEqual(result.returncode, 2)
            self.assertEqual(os.listdir(folder), [])


class ClosedDescriptors(unittest.TestCase):
    def test_the_table_goes_nowhere_and_that_is_an_error(self):
        for closed in (">&-", "<&- >&-"):
            result = subprocess.run(["sh", "-c", f'"$0" perf all_reduce --ranks 3 -e 1K -n 2 -w 0 {closed}', PROGRAM],
                                    capture_output=True, text=True, timeout=TIMEOUT_S, env=environment())
            self.assertNotEqual(result.returncode, 0, closed)
            self.assertIn("standard output", result.stderr)
            self.assertNotIn("unknown", result.stderr)


class Processes(unittest.TestCase):
    def assert_gone(self, run, seconds=10):
        for rank, pid in run.ranks.items():
            self.assertTrue(wait_until(lambda: gone(pid), seconds), f"rank {rank} is still there")

    def test_the_id_is_in_no_argument_and_no_variable(self):
        with Endless(2) as run:
            environ = read(f"/proc/{run.process.pid}/environ")
            words = read(f"/proc/{run.process.pid}/cmdline").split(b"\0")
            for pid in run.ranks.values():
                self.assertEqual(read(f"/proc/{pid}/environ"), environ)
                own = read(f"/proc/{pid}/cmdline").split(b"\0")
                at = own.index(b"--launched")
                self.assertRegex(own[at + 1], rb"^\d+:\d+:2$")
                self.assertEqual(own[1:at] + own[at + 2:], words[1:])

    def test_a_killed_rank_fails_the_run_and_the_others_say_so(self):
        with Endless(3) as run:
            begin = time.monotonic()
            os.kill(run.ranks[1], signal.SIGKILL)
            code, err = run.finish()
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(code, 3)
            self.assertIn(f"rank 1 (process {run.ranks[1]}) was killed by signal 9", err)
            for survivor in (0, 2):
                self.assertRegex(err, rf"(?m)^rocenante: rank {survivor}: .+: .*\b1\b")
                self.assertIn(f"rank {survivor} (process {run.ranks[survivor]}) failed with exit code 3", err)
            self.assert_gone(run)

    def test_ending_the_launcher_ends_the_ranks(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number.name), Endless(3) as run:
                os.kill(run.process.pid, number)
                code, _ = run.finish()
                self.assertEqual(code, -number)
                self.assert_gone(run)

    def test_interrupting_the_group_ends_all(self):
        with Endless(3) as run:
            os.killpg(run.process.pid, signal.SIGINT)
            code, _ = run.finish()
            self.assertEqual(code, -signal.SIGINT)
            self.assert_gone(run)

    def test_killing_the_launcher_ends_the_ranks(self):
        with Endless(3) as run:
            os.kill(run.process.pid, signal.SIGKILL)
            run.process.wait(TIMEOUT_S)
            self.assert_gone(run)

    def test_a_reader_that_leaves_ends_the_run(self):
        with Endless(2) as run:
            run.process.stdout.close()
            self.assertEqual(run.process.wait(TIMEOUT_S), -signal.SIGPIPE)
            self.assertNotIn("killed by signal", run.process.stderr.read())
            self.assert_gone(run)

    def test_ranks_started_by_hand_meet_at_an_address(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        started = [start("--rank", rank, "--world", 3, "--rendezvous", f"127.0.0.1:{port}", "-e", 64, "-n", 2)
                   for rank in (2, 0, 1)]
        outputs = [process.communicate(timeout=TIMEOUT_S) for process in started]
        self.assertEqual([process.returncode for process in started], [0, 0, 0], outputs)
        self.assertEqual([len(rows(out)) for out, _ in outputs], [0, 4, 0])
        self.assertEqual([err for _, err in outputs], ["", "", ""])


class Run(unittest.TestCase):
    def setUp(self):
        if FAULT == "none":
            self.skipTest("no preloaded library here")

    SHOW = 'echo "$LD_PRELOAD|$LD_LIBRARY_PATH|$ROCENANTE_FALLBACK|$ROCENANTE_DEVICE|$1"'

    def test_the_command_finds_the_library_first_and_gets_its_own_arguments(self):
        result = run("run", "--fallback", "off", "--device", "host", "--", "sh", "-c", self.SHOW, "sh", "--quiet",
                     LD_LIBRARY_PATH="/somewhere")
        self.assertEqual(result.returncode, 0, result.stderr)
        preload, path, fallback, device, argument = result.stdout.strip().split("|")
        self.assertTrue(os.path.samefile(preload, os.path.join(path.split(":")[0], "libnccl.so.2")))
        self.assertTrue(os.path.exists(os.path.join(path.split(":")[0], "libnccl.so")))
        self.assertEqual(path.split(":")[1], "/somewhere")
        self.assertEqual((fallback, device, argument), ("off", "host", "--quiet"))
        self.assertIn(preload, result.stderr)

    def test_quiet_says_nothing_and_the_exit_code_is_the_command_s(self):
        result = run("run", "-q", "sh", "-c", "exit 7")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "", ""))

    def test_without_a_command_or_with_one_that_is_not_there(self):
        self.assertEqual(run("run").returncode, 2)
        self.assertEqual(run("run", "--").returncode, 2)
        result = run("run", "-q", "--", "/nowhere/at/all")
        self.assertEqual(result.returncode, 3)
        self.assertIn("/nowhere/at/all", result.stderr)


class Faults(unittest.TestCase):
    def setUp(self):
        if FAULT == "none":
            self.skipTest("no fault library in this build")

    def test_one_wrong_bit_on_one_rank_is_counted_and_fails_the_run(self):
        result = perf("--ranks", 3, "-b", 64, "-e", 128, "-n", 2, "--json", "-", LD_PRELOAD=FAULT, CLI_FAULT="flip:2:1")
        self.assertEqual(result.returncode, 1)
        self.assertEqual([json.loads(line)["wrong"] for line in result.stdout.splitlines()], [1, 1, 1, 1])
        self.assertIn("# Out of bounds values : 4 FAILED\n", result.stderr)
        self.assertRegex(result.stderr, r"rank 2: out-of-place float sum of 16 elements: 1 wrong, first at index 8: "
                                        r"expected 0x[0-9a-f]{8}, found 0x[0-9a-f]{8}\n")

    def test_unchecked_runs_do_not_notice(self):
        result = perf("-b", 64, "-e", 64, "-n", 2, "-c", 0, LD_PRELOAD=FAULT, CLI_FAULT="flip:1:1")
        self.assertEqual(result.returncode, 0)

    def test_a_rank_that_does_not_notice_is_killed_after_the_grace(self):
        process = start("--ranks", 3, "-e", "1K", "-n", 1000, "--grace", 2, LD_PRELOAD=FAULT,
                        CLI_FAULT="kill:1:50,stop:2:50")
        begin = time.monotonic()
        _, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 3)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertRegex(err, r"rank 1 \(process \d+\) was killed by signal 9")
        self.assertRegex(err, r"killing ranks? .*\b2, still running 2 s after the first failure")


if __name__ == "__main__":
    PROGRAM, FAULT = os.path.abspath(sys.argv[1]), sys.argv[2]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
