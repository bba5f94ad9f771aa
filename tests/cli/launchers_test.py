#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the command line as mpirun, mpiexec, srun and torchrun do: with those that are installed, and with
the variables that they set.

Usage: launchers_test.py PROGRAM [unittest arguments]"""
import os
import re
import shutil
import socket
import subprocess
import sys
import unittest

PROGRAM = ""
TIMEOUT_S = 120
SIZES = ("-b", "8", "-e", "64", "-f", "8", "-n", "2", "-w", "1")
TOOLS = ("ROCENANTE_", "NCCL_", "OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_")
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith(TOOLS) and k not in TORCH}
    env.update({name: str(value) for name, value in extra.items()})
    return env


def start(*arguments, command=(), **extra):
    return subprocess.Popen([*command, PROGRAM, "perf", "all_reduce", *SIZES, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**extra),
                            stdin=subprocess.DEVNULL)


def finish(process):
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def free_port():
    """One whose next is free too."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def ranks_of(out):
    return [int(number) for number in re.findall(r"^# ranks (\d+) ", out, re.MULTILINE)]


def rows(out):
    return [line.split() for line in out.splitlines() if re.match(r"^ +\d", line)]


class Case(unittest.TestCase):
    def assert_ran(self, results, ranks):
        """One table, of the first process, and nothing wrong."""
        self.assertEqual([code for code, _, _ in results], [0] * len(results), results)
        self.assertEqual([err for _, _, err in results], [""] * len(results))
        self.assertEqual([ranks_of(out) for _, out, _ in results], [[ranks]] + [[]] * (len(results) - 1))
        self.assertEqual([(row[0], row[8], row[12]) for row in rows(results[0][1])], [("8", "0", "0"), ("64", "0", "0")])


class Simulated(Case):
    def test_each_tool_on_one_host(self):
        for count, ranks, variables in (
            (2, (), {"OMPI_COMM_WORLD_RANK": None, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2}),
            (2, ("--ranks", 2), {"PMI_RANK": None, "PMI_SIZE": 2}),
            (2, (), {"PMIX_RANK": None, "SLURM_PROCID": None, "SLURM_NTASKS": 2, "SLURM_JOB_ID": os.getpid(),
                     "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_NODES": 1}),
            (3, (), {"RANK": None, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3, "MASTER_ADDR": "nowhere.invalid",
                     "MASTER_PORT": 1}),
        ):
            with self.subTest(variables):
                # The first one last: the others wait for it.
                started = [start(*ranks, **{k: i if v is None else v for k, v in variables.items()})
                           for i in reversed(range(count))]
                self.assert_ran([finish(process) for process in reversed(started)], count * (ranks or (0, 1))[1])

    def test_torchrun_meets_beside_its_store(self):
        port = free_port()
        with socket.socket() as store:
            store.bind(("127.0.0.1", port))
            store.listen()
            started = [start("--ranks", 2, RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                       for rank in range(2)]
            self.assert_ran([finish(process) for process in started], 4)

    def test_rendezvous_wins_over_the_job(self):
        at = f"127.0.0.1:{free_port()}"
        started = [start("--rendezvous", at, OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=2,
                         OMPI_COMM_WORLD_LOCAL_SIZE=1) for rank in range(2)]
        self.assert_ran([finish(process) for process in started], 2)

    def test_launcher_none_ignores_the_job(self):
        code, out, err = finish(start("--launcher", "none", RANK="x", PMI_RANK=7))
        self.assertEqual((code, ranks_of(out), err), (0, [2], ""))

    def test_a_process_that_does_not_come_is_named(self):
        code, _, err = finish(start(PMI_RANK=0, PMI_SIZE=3, PMI_JOBID=f"test {os.getpid()}",
                                    ROCENANTE_INIT_TIMEOUT_S=0.5))
        self.assertEqual(code, 3)
        self.assertRegex(err, r"rank 0: .*job 'test \d+', these did not come .*: 1, 2\. .*--rendezvous")
        code, _, err = finish(start(PMI_RANK=1, PMI_SIZE=3, ROCENANTE_INIT_TIMEOUT_S=0.5))
        self.assertEqual(code, 3)
        self.assertRegex(err, r"rank 1: process 0 of job .*--rendezvous HOST:PORT")

    def test_processes_at_odds_are_told(self):
        both = [start("--ranks", ranks, PMI_RANK=rank, PMI_SIZE=2) for rank, ranks in ((1, 2), (0, 1))]
        for code, _, err in map(finish, both):
            self.assertEqual(code, 3)
            self.assertIn("process 1 of the job says there are 2 with 2 ranks each, process 0 says 2 with 1", err)

    def test_bad_variables_are_refused(self):
        for variables, words in (({"RANK": 2, "WORLD_SIZE": 2}, "RANK '2': must be a whole number from 0 to 1"),
                                 ({"RANK": 0}, "RANK '0' is set and WORLD_SIZE is not"),
                                 ({"PMI_RANK": 0, "PMI_SIZE": 2, "PMIX_RANK": 1}, "PMIX_RANK '1' contradict"),
                                 ({"PMI_RANK": 0, "PMI_SIZE": 2, "MPI_LOCALNRANKS": 1}, "--rendezvous HOST:PORT")):
            code, out, err = finish(start(**variables))
            self.assertEqual((code, out), (2, ""))
            self.assertIn(words, err)

    def test_torchrun_across_hosts_needs_a_secret(self):
        code, _, err = finish(start(RANK=1, WORLD_SIZE=2, MASTER_ADDR="192.0.2.1", MASTER_PORT=1))
        self.assertEqual(code, 3)
        self.assertRegex(err, "rank 1: cannot meet at 192.0.2.1:2: .*ROCENANTE_SECRET")

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_another_user_is_not_believed(self):
        job = f"test {os.getpid()}"
        name = 0xcbf29ce484222325
        for letter in job.encode():
            name = (name ^ letter) * 0x100000001b3 % 2**64
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as false_host:
            # Peers see who listened, so that is done as somebody else.
            false_host.bind(f"\0rocenante-job-{os.geteuid()}-{name:016x}".ljust(108, "\0"))
            os.seteuid(65534)
            false_host.listen()
            os.seteuid(0)
            code, _, err = finish(start(PMI_RANK=1, PMI_SIZE=2, PMI_JOBID=job))
        self.assertEqual(code, 3)
        self.assertIn("belongs to another user", err)


class Real(Case):
    def mpi(self, program, *options):
        path = shutil.which(program)
        if path is None:
            self.skipTest(f"{program} is not installed (scripts/deps.sh --peers installs it)")
        return [path, *options]

    def test_open_mpi(self):
        allow = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}
        mpirun = self.mpi("mpirun.openmpi", "--oversubscribe", "-n", "2")
        self.assert_ran([finish(start(command=mpirun, **allow))], 2)
        self.assert_ran([finish(start("--ranks", 2, command=mpirun, **allow))], 4)

    def test_mpich(self):
        mpiexec = self.mpi("mpiexec.hydra", "-n", "3")
        self.assert_ran([finish(start(command=mpiexec))], 3)
        # The shells between have the variables too.
        script = [*mpiexec, "sh", "-c", '"$@"; exit $?', "sh"]
        self.assert_ran([finish(start(command=script))], 3)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
