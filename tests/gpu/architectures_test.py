#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""architectures.sh finds what to build for, with an nvidia-smi made here."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "architectures.sh"


class Architectures(unittest.TestCase):
    def run_with(self, program):
        with tempfile.TemporaryDirectory() as folder:
            if program is not None:
                path = pathlib.Path(folder, "nvidia-smi")
                path.write_text("#!/bin/sh\n" + program)
                path.chmod(0o755)
            done = subprocess.run([SCRIPT], capture_output=True, text=True, check=True,
                                  env=os.environ | {"PATH": folder + ":/usr/bin:/bin"})
            self.assertEqual(done.stderr, "")
            return done.stdout.strip()

    def test_each_capability_once_and_the_oldest_first(self):
        self.assertEqual(self.run_with("printf '12.1\\n'"), "121")
        self.assertEqual(self.run_with("printf '12.0\\n9.0\\n9.0\\n'"), "90;120")

    def test_it_asks_for_the_capability(self):
        self.assertEqual(self.run_with('case "$*" in *compute_cap*noheader*) echo 9.0;; esac'), "90")

    def test_nothing_where_it_is_not_known(self):
        for program in ["echo '[N/A]'", "echo 'NVIDIA-SMI has failed' >&2; exit 9", "exit 0"]:
            with self.subTest(program=program):
                self.assertEqual(self.run_with(program), "")

    @unittest.skipIf(any(pathlib.Path(folder, "nvidia-smi").exists() for folder in ("/usr/bin", "/bin")),
                     "this machine has an nvidia-smi")
    def test_nothing_without_nvidia_smi(self):
        self.assertEqual(self.run_with(None), "")


if __name__ == "__main__":
    unittest.main()
