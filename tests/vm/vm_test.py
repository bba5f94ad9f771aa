#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tests/vm/run.sh: what a command sees in a guest, what comes back, and what is left behind.

Usage: vm_test.py [unittest arguments]. Exits 77, after saying why, where guests cannot run."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

RUN = str(pathlib.Path(__file__).resolve().parent / "run.sh")
TIMEOUT_S = 300
CANNOT_RUN = 77


def start(*arguments, **extra):
    return subprocess.Popen([RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, **extra), stdin=subprocess.DEVNULL)


def run(*arguments, **extra):
    process = start(*arguments, **extra)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def descendants(pid):
    """Process ids and names, deepest last."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found.append((int(child), pathlib.Path(f"/proc/{child}/comm").read_text().strip()))
            found += descendants(child)
    return found


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


# Two processes of one guest, on the second rail, over real libibverbs.
WRITE = """
size=64
ib_write_lat -d rxe1 -x 1 -n 100 -s $size > /run/tmp/server 2>&1 &
server=$!
until ss -Hltn 'sport = :18515' | grep -q .; do kill -0 $server || { cat /run/tmp/server; exit 9; }; sleep 0.1; done
ib_write_lat -d rxe1 -x 1 -n 100 -s $size 10.77.1.1 2> /dev/null | awk '$1 == 64 { print "writes", $2 }'
wait $server
"""

GUEST = """
set -u
echo to stdout
echo to stderr >&2
echo again > /dev/stdout
echo again > /dev/stderr
printf '%s|' "$@"; echo
pwd
echo "$VM_TEST"
echo below > "$OUT/file"
cmp "$0" "$OUT/script" && echo same file
touch "$PWD/new" 2> /dev/null || echo read-only
touch "$TMPDIR/new" && [ -z "$(ls /dev/shm)" ] && echo own places
command -v rocenante
for device in rxe0 rxe1; do ibv_devinfo -d $device | awk '/state:/ { print $2 }'; done
cat /sys/class/infiniband/rxe1/ports/1/gids/1
ulimit -l
WRITE
sleep 1000 &
exit 42
"""


class Guest(unittest.TestCase):
    def test_command(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "with space, and comma"
            out.mkdir()
            script = out / "script"
            script.write_text(GUEST.replace("WRITE", WRITE))
            path = pathlib.Path(RUN).parents[2] / "build/release/bin/rocenante"
            code, stdout, stderr = run("--rails", 2, "--out", out, "--", "bash", script, "a b", "", "it's $HOME",
                                       VM_TEST="passed\non", OUT=str(out))
            self.assertEqual(stderr, "to stderr\nagain\n")
            self.assertEqual(stdout.splitlines(), [
                "to stdout", "again", "a b||it's $HOME|", os.getcwd(), "passed", "on", "same file", "read-only",
                "own places", str(path), "PORT_ACTIVE", "PORT_ACTIVE", "0000:0000:0000:0000:0000:ffff:0a4d:0101",
                "unlimited", "writes 100"
            ])
            self.assertEqual(code, 42)
            self.assertEqual((out / "file").read_text(), "below\n")


HOSTS = """
echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
echo "$ROCENANTE_SECRET" > "$OUT/secret$RANK"
other=$((1 - RANK))
ping -c 1 -W 30 10.77.0.$((other + 1)) > /dev/null && echo "reaches $other"
if [ $RANK = 0 ]; then
  touch "$OUT/ended"
  exit 3
fi
vm-fault loss 0 25
tc qdisc show dev v0 | grep -o 'netem.*loss 25%' | cut -c 1-5
vm-fault loss 0 0
until [ -e "$OUT/ended" ]; do sleep 0.1; done
ping -c 10 -i 0.2 10.77.0.1 > /dev/null && echo "a host outlives its command"
vm-fault down 0
cat /sys/class/infiniband/rxe0/ports/1/state
vm-fault off
sleep 1000
"""


class Hosts(unittest.TestCase):
    def test_two(self):
        with tempfile.TemporaryDirectory() as folder:
            code, stdout, stderr = run("--hosts", 2, "--lost", 1, "--out", folder, "--", "bash", "-c", HOSTS, OUT=folder,
                                       ROCENANTE_SECRET="")
            self.assertEqual(stderr, "")
            for rank, more in (0, []), (1, ["netem", "a host outlives its command", "1: DOWN"]):
                prefix = f"host{rank}: "
                lines = [line[len(prefix):] for line in stdout.splitlines() if line.startswith(prefix)]
                self.assertEqual(lines, [f"{rank} of 2 at 10.77.0.1:29500", f"reaches {1 - rank}", *more])
            self.assertEqual(code, 3)
            secrets = [(pathlib.Path(folder) / f"secret{rank}").read_text().strip() for rank in range(2)]
            self.assertEqual(secrets[0], secrets[1])
            self.assertGreater(len(secrets[0]), 20)

    def test_a_host_that_vanishes_is_an_error(self):
        code, stdout, stderr = run("--hosts", 2, "--", "bash", "-c", "[ $RANK = 0 ] || vm-fault off; exec sleep 1000")
        self.assertEqual(code, 125)
        self.assertEqual(stdout, "")
        self.assertRegex(stderr, "^run.sh: the guest of host 1 ended by itself")


class Ending(unittest.TestCase):
    def test_signal(self):
        with tempfile.TemporaryDirectory() as folder:
            process = start("--hosts", 2, "--", "bash", "-c", "echo ready; exec sleep 1000", TMPDIR=folder)
            # Both are up when both have answered each other.
            self.assertRegex(process.stdout.readline(), "^host[01]: ready$")
            family = descendants(process.pid)
            self.assertEqual([name for _, name in family].count("qemu-system-x86"), 3)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual((process.returncode, err), (143, ""), out)
            self.assertEqual([one for one in family if is_alive(one[0])], [])
            self.assertEqual(os.listdir(folder), [])

    def test_deadline(self):
        # No guest is up within a second.
        code, stdout, stderr = run("--timeout", 1, "--", "sleep", 1000)
        self.assertEqual((code, stdout), (124, ""))
        self.assertEqual(stderr, "run.sh: the guest of host 0 did not end within 1 s\n")


class Arguments(unittest.TestCase):
    def test_refused(self):
        for arguments, message in (
            (["--rails", "0", "--", "true"], "--rails '0': must be a number from 1 to 8"),
            (["--rails", "two", "--", "true"], "--rails 'two': must be a number from 1 to 8"),
            (["--hosts", "5", "--", "true"], "--hosts '5': must be a number from 1 to 4"),
            (["--hosts", "2", "--lost", "2", "--", "true"], "--lost '2': must be a number from 0 to 1"),
            (["--timeout", "0", "--", "true"], "--timeout '0': must be a number from 1 to 86400"),
            (["--out", "/nowhere", "--", "true"], "--out '/nowhere': must be a directory that can be written"),
            (["--rails"], "--rails needs a value"),
            (["true"], "unknown argument 'true'; COMMAND follows '--'"),
            (["--"], "there is no COMMAND after '--'"),
        ):
            with self.subTest(arguments):
                self.assertEqual(run(*arguments), (2, "", f"run.sh: {message}\n"))

    def test_a_host_without_the_emulator_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            for program in ("bash", "dirname", "uname"):
                os.symlink(f"/usr/bin/{program}", pathlib.Path(folder) / program)
            code, stdout, stderr = run("--", "true", PATH=folder)
            self.assertEqual((code, stdout), (CANNOT_RUN, ""))
            self.assertEqual(stderr, "run.sh: no guest can run here: qemu-system-x86_64 is not installed "
                             "(scripts/deps.sh installs it)\n")

    def test_another_processor_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            uname = pathlib.Path(folder) / "uname"
            uname.write_text("#!/bin/sh\necho aarch64\n")
            uname.chmod(0o755)
            code, stdout, stderr = run("--", "true", PATH=f"{folder}:{os.environ['PATH']}")
            self.assertEqual((code, stdout), (CANNOT_RUN, ""))
            self.assertIn("the guest is x86_64 and this host aarch64", stderr)


if __name__ == "__main__":
    possible = subprocess.run([RUN, "--check"], stdin=subprocess.DEVNULL, check=False).returncode
    if possible != 0:
        sys.exit(possible)
    unittest.main()
