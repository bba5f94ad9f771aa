#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_docs.py and ci_minutes.py can fail: they find what is wrong in documents and logs made here."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LOG = """test.sh: building release
test.sh: release built in 120 s
test.sh: aarch64 built in 60 s
  1/3 Test  #1: release.unit.config ................   Passed    6.00 sec
  2/3 Test  #2: release.lint.tidy ..................***Skipped   0.10 sec
  3/3 Test #30: aarch64.unit.config ................***Failed   12.00 sec
aarch64     =  12.00 sec*proc (1 test)
release     =   6.10 sec*proc (2 tests)
Total Test time (real) =  30.00 sec
"""
PAGE = "before\n<!-- minutes -->\nold\n<!-- end of minutes -->\nafter\n"


class Documents(unittest.TestCase):
    def run_on(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "build/bin").mkdir(parents=True)
            (root / "README.md").write_text(text)
            done = subprocess.run([sys.executable, HERE / "run_docs.py", "--source", root, "--build", root / "build"],
                                  capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def test_marked_blocks_run_and_others_do_not(self):
        code, output = self.run_on("<!-- run -->\n\n    true\n\n    true\n\ntext\n\n    false\n\n<!-- run -->\n"
                                   "```sh\ntrue\n```\n\n<!-- not run: why -->\n\n    false\n")
        self.assertEqual(code, 0, output)
        self.assertIn("2 blocks run, 0 failed", output)
        self.assertIn("not run: why", output)

    def test_what_is_wrong_is_found(self):
        for text, expected in [
            ("<!-- run -->\n\n    false\n    true\n", "exit code 1"),
            ("<!-- run -->\n\n    true\n\n    false | true\n", "exit code 1"),
            ("<!-- run -->\n\n    false &\n    true\n", "exit code 1"),
            ("<!-- run -->\n\n    echo $NOT_SET_ANYWHERE\n", "exit code 1"),
            ("<!-- run -->\n\ntext\n", "no block of commands"),
            ("<!-- not run -->\n\n    true\n", "no reason"),
            ("<!-- run this -->\n\n    true\n", "is not a mark"),
            ("nothing\n", "0 blocks run"),
        ]:
            with self.subTest(text=text):
                code, output = self.run_on(text)
                self.assertEqual(code, 1, output)
                self.assertIn(expected, output)


class Minutes(unittest.TestCase):
    def fill(self, log):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "log").write_text(log)
            (root / "page.md").write_text(PAGE)
            done = subprocess.run([sys.executable, HERE.parents[1] / "scripts/ci_minutes.py", root / "log", "--page",
                                   root / "page.md"], capture_output=True, text=True)
            return done.returncode, (root / "page.md").read_text(), done.stderr

    def test_the_table(self):
        code, page, error = self.fill(LOG)
        self.assertEqual(code, 0, error)
        for line in ("| release | 2.0 | 2 | 0.1 |", "| aarch64 | 1.0 | 1 | 0.2 |", "| all | 3.0 | 3 | 0.5 passed |",
                     "In all 3.5 minutes", "`aarch64.unit.config` 12, `release.unit.config` 6"):
            self.assertIn(line, page)
        self.assertTrue(page.startswith("before\n") and page.endswith("after\n") and "old" not in page, page)

    def test_a_log_that_ends_early_is_refused(self):
        code, page, error = self.fill(LOG.split("Total")[0])
        self.assertEqual((code, page), (1, PAGE))
        self.assertIn("this is not what scripts/test.sh prints", error)


if __name__ == "__main__":
    unittest.main()
