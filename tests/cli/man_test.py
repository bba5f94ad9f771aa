#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages name exactly the commands and options that --help names, with the same values and defaults,
and roff has nothing to say about them."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs/man"
program = sys.argv.pop(1)


def help_of(*command):
    text = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True).stdout
    # CLI11 shows a default as =8 or as [8], by its version.
    return re.sub(r" \[(\w+)\]", r"=\1", text)


def help_terms(text):
    """The first column of every list but that of commands: '-b,--minbytes SIZE=8'."""
    before_commands = text.split("\nSubcommands:\n")[0]
    terms = re.findall(r"^  (\S.*?)(?:  +\S.*)?$", before_commands.split("\nUsage:")[1], re.MULTILINE)
    return [term.removesuffix(" REQUIRED") for term in terms if re.match(r"-|[A-Z]+( |$)", term)]


def commands():
    listed = help_of().split("\nSubcommands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+)", listed, re.MULTILINE)


def plain(roff):
    return re.sub(r"\\f.", "", roff).replace("\\-", "-")


def page_terms(page, section):
    """The terms of the tagged lists of a section, written as --help writes them."""
    parts = re.split(r'^\.S[HS] "?([^"\n]*)"?\n', page, flags=re.MULTILINE)
    text = "".join(body for title, body in zip(parts[1::2], parts[2::2]) if title in section)
    return [plain(term).replace(", -", ",-") for term in re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)]


def sections_of(page):
    return re.findall(r'^\.S[HS] "?([^"\n]*)"?$', page, re.MULTILINE)


class Man(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.main = (PAGES / "rocenante.1").read_text()

    def test_the_commands_are_those_of_the_help(self):
        self.assertEqual(page_terms(self.main, ["COMMANDS"]), commands())

    def test_the_options_are_those_of_the_help(self):
        self.assertEqual(page_terms(self.main, ["OPTIONS"]), help_terms(help_of()))

    def test_the_options_of_each_command_are_those_of_its_help(self):
        for command in commands():
            with self.subTest(command=command):
                own = PAGES / f"rocenante-{command}.1"
                if own.exists():
                    page = own.read_text()
                    titles = sections_of(page)
                    section = titles[titles.index("OPTIONS"):titles.index("EXIT STATUS")]
                else:
                    page, section = self.main, [f"Options of rocenante {command}"]
                found = page_terms(page, section)
                self.assertEqual(found, help_terms(help_of(command)))
                self.assertIn("-h,--help", found)

    def test_no_page_is_about_a_command_that_is_gone(self):
        about = {page.stem.removeprefix("rocenante-") for page in PAGES.glob("rocenante-*.1")}
        self.assertEqual(about - set(commands()), set())

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_roff_has_no_complaint(self):
        for page in sorted(PAGES.glob("*.1")):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)


if __name__ == "__main__":
    unittest.main()
