#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that every check of the sources can fail: each is given small trees with one fault."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
SCRIPT_HEAD = "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\nset -euo pipefail\n"
STYLE = "BasedOnStyle: Google\n"


def run(check, files, *arguments):
    """Exit code and output of a check over a tree with these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, str(SCRIPTS / check), "--root", folder, *arguments],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class CheckTest(unittest.TestCase):
    check = ""

    def passes(self, files):
        code, output = run(self.check, files)
        self.assertEqual(code, 0, output)

    def finds(self, expected, files):
        """The check reports exactly one finding, with this text."""
        code, output = run(self.check, files)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)
        self.assertIn("1 finding(s)", output)


class Includes(CheckTest):
    check = "check_includes.py"
    TREE = {
        "include/rocenante/rocenante.h": LICENCE,
        "lib/base/status.h": "#include <string>\n#include <fmt/core.h>\n",
        "lib/net/socket.h": '#include "lib/base/status.h"\n#include <sodium.h>\n',
        "lib/protocol/round.h": '#include <cstdint>\n#include "lib/protocol/layout.h"\n',
        "lib/protocol/layout.h": "#include <cstdint>\n",
        "reduce_kernels/reduce.h": '#include "lib/base/status.h"\n',
        "lib/device/cuda_device.cc": "#include <cuda.h>\n",
        "transports/transport.h": '#include "lib/base/status.h"\n',
        "transports/shm/shm.h": '#include "transports/transport.h"\n',
        "transports/tcp/tcp.h": '#include "lib/net/socket.h"\n',
        "transports/verbs/verbs.h": "#include <infiniband/verbs.h>\n",
        "transports/factory.cc": '#include "transports/shm/shm.h"\n#include "transports/tcp/tcp.h"\n',
        "lib/comm/communicator.h": '#include <rocenante/rocenante.h>\n#include "transports/transport.h"\n',
        "lib/c_api.cc": '#include <rocenante/rocenante.h>\n#include "lib/comm/communicator.h"\n',
        "bench/cli/main.cc": "#include <rocenante/rocenante.h>\n#include <CLI/CLI.hpp>\n",
        "bench/reduce_bench.cc": '#include "reduce_kernels/reduce.h"\n',
        "tests/unit/any_test.cc": '#include "lib/comm/communicator.h"\n#include "bench/cli/text.h"\n',
        "bench/cli/text.h": "#include <string>\n",
    }

    def with_line(self, path, line):
        return {**self.TREE, path: self.TREE.get(path, "") + line + "\n"}

    def test_the_permitted_tree_passes(self):
        self.passes(self.TREE)

    def test_each_forbidden_include_is_found(self):
        for path, line, expected in [
            ("lib/base/status.h", "#include <rocenante/rocenante.h>", "lib/base may not include include/rocenante"),
            ("lib/base/status.h", '#include "lib/net/socket.h"', "lib/base may not include lib/net"),
            ("lib/net/socket.h", '#include "transports/transport.h"', "lib/net may not include transports"),
            ("lib/protocol/round.h", "#include <atomic>", "lib/protocol may include <cstdint> only"),
            ("lib/protocol/round.h", '#include "lib/base/status.h"', "lib/protocol may not include lib/base"),
            ("lib/protocol/round.h", "#  include <cuda_runtime.h>", "lib/protocol may include <cstdint> only"),
            ("reduce_kernels/reduce.h", '#include "transports/transport.h"', "reduce_kernels may not include"),
            ("transports/shm/shm.h", '#include "transports/tcp/tcp.h"', "only transports/factory.cc names"),
            ("transports/transport.h", '#include "transports/shm/shm.h"', "only transports/factory.cc names"),
            ("transports/shm/shm.h", '#include "lib/comm/communicator.h"', "transports may not include lib/comm"),
            ("lib/comm/communicator.h", '#include "transports/shm/shm.h"', "only transports/factory.cc names"),
            ("lib/comm/communicator.h", '#include "bench/cli/text.h"', "nothing includes bench/"),
            ("lib/comm/communicator.h", '#include "tests/unit/any_test.cc"', "nothing includes tests/"),
            ("bench/cli/main.cc", '#include "lib/base/status.h"', "bench may not include lib/base"),
            ("bench/cli/main.cc", '#include "reduce_kernels/reduce.h"', "bench may not include reduce_kernels"),
            ("bench/cli/main.cc", '#include "text.h"', "by their path from the root"),
            ("lib/comm/communicator.h", "#include <infiniband/verbs.h>", "may include infiniband/"),
            ("tests/unit/any_test.cc", "#include <infiniband/verbs.h>", "may include infiniband/"),
            ("lib/comm/communicator.h", "#include <cuda_runtime.h>", "CUDA headers only in"),
            ("lib/comm/communicator.h", "#include <sodium.h>", "only lib/net may include sodium"),
            ("lib/comm/communicator.h", "#include <catch2/catch.hpp>", "only tests may include catch2/"),
            ("plugins/new.cc", '#include "lib/base/status.h"', "plugins/ is not in the list of folders"),
        ]:
            with self.subTest(path=path, line=line):
                self.finds(expected, self.with_line(path, line))


class Sources(CheckTest):
    check = "check_sources.py"

    def test_a_good_tree_passes(self):
        self.passes({"a.h": LICENCE + "int a;\n", "long.cc": LICENCE + "int a;\n" * 399,
                     "README.md": "# Title\n", "table.txt": "x\n" * 900, "b.sh": SCRIPT_HEAD,
                     "c.h": "/* SPDX-License-Identifier: Apache-2.0\n */\n"})

    def test_each_fault_is_found(self):
        for expected, name, text in [
            ("SPDX", "a.h", "int a;\n"),
            ("SPDX", "CMakeLists.txt", "project(x)\n"),
            ("SPDX", "a.py", "#!/usr/bin/env python3\n\n# SPDX-License-Identifier: Apache-2.0\n"),
            ("501 lines", "a.cc", LICENCE + "int a;\n" * 500),
            ("white space at the end", "a.h", LICENCE + "int a; \n"),
            ("a tab", "README.md", "a\tb\n"),
            ("no newline", "README.md", "a"),
            ("blank lines at the end", "README.md", "a\n\n"),
            ("'TODO'", "README.md", "TODO later\n"),
            ("'/home/'", "README.md", "see /home/me/x\n"),
            ("README.md:3: 'docs/nowhere.md' does not exist", "README.md",
             "[self](README.md) [web](https://example.org/x)\n\n[gone](docs/nowhere.md#part)\n"),
            ("names of std", "a.cc", LICENCE + "using namespace std;\n"),
        ]:
            with self.subTest(expected=expected, name=name):
                self.finds(expected, {name: text})

    def test_a_long_file_is_noted_before_it_is_refused(self):
        code, output = run(self.check, {"a.cc": LICENCE + "int a;\n" * 400})
        self.assertEqual(code, 0, output)
        self.assertIn("note: a.cc: 401 lines", output)


class Format(CheckTest):
    check = "check_format.py"

    def setUp(self):
        code, output = run(self.check, {})
        if code == 77:
            self.skipTest(output)

    def test_formatted_text_passes(self):
        self.passes({".clang-format": STYLE, "a.cc": "int a = 1;\n"})

    def test_unformatted_text_is_found(self):
        code, output = run(self.check, {".clang-format": STYLE, "a.cc": "int  a=1;\n"})
        self.assertEqual(code, 1, output)
        self.assertIn("a.cc:1:", output)


class Shell(CheckTest):
    check = "check_shell.py"

    def test_a_good_script_passes(self):
        self.passes({"a.sh": SCRIPT_HEAD + "echo a\n"})

    def test_a_syntax_error_is_found(self):
        code, output = run(self.check, {"a.sh": SCRIPT_HEAD + "if true; then\n"})
        self.assertEqual(code, 1, output)
        self.assertIn("syntax error", output)

    def test_a_script_without_suffix_is_found_by_its_first_line(self):
        self.finds("without 'set -euo pipefail'", {"run": "#!/usr/bin/env bash\necho a\n"})


class Tidy(unittest.TestCase):
    # The lint that the compilers do not do; the tree is compiled by nothing but clang-tidy.
    FILES = {
        "lib/base/fixture.h": LICENCE + '#pragma once\nnamespace x {\nint wrong_constant();\n}\n',
        "lib/base/fixture.cc": LICENCE + '#include "lib/base/fixture.h"\n\n'
                               "namespace x {\nnamespace {\nconstexpr int badly_named = 3;\n}\n"
                               "int wrong_constant() { return badly_named; }\n}\n",
    }

    def tidy(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            build = root / "build"
            build.mkdir()
            (root / "lib/base").mkdir(parents=True)
            for name, text in files.items():
                (root / name).write_text(text)
            (root / ".clang-tidy").write_text((SCRIPTS.parent / ".clang-tidy").read_text())
            (build / "compile_commands.json").write_text(json.dumps(
                [{"directory": str(build), "file": str(root / name), "command": f"c++ -std=c++20 -I{root} -c {root / name}"}
                 for name in files if name.endswith(".cc")]))
            command = [sys.executable, str(SCRIPTS / "check_tidy.py"), "--root", folder, "--build", str(build)]
            done = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
            return [(one.returncode, one.stdout + one.stderr) for one in done]

    def test_a_fault_is_found_and_found_again(self):
        for code, output in self.tidy(self.FILES):
            if code == 77:
                self.skipTest(output)
            self.assertEqual(code, 1, output)
            self.assertIn("invalid case style for", output)
            self.assertIn("badly_named", output)

    def test_a_good_file_passes_and_is_remembered(self):
        files = {name: text.replace("badly_named", "kNamed") for name, text in self.FILES.items()}
        (first, first_output), (second, second_output) = self.tidy(files)
        if first == 77:
            self.skipTest(first_output)
        self.assertEqual((first, second), (0, 0), first_output + second_output)
        self.assertIn("0 known, 1 checked", first_output)
        self.assertIn("1 known, 0 checked", second_output)

    def test_files_looked_at_together_are_reported_apart(self):
        head = LICENCE + "namespace x {\nnamespace {\n"
        files = {
            "lib/base/type.h": LICENCE + "#pragma once\nnamespace y {\nstruct Type {};\n}\n",
            # What it brings in, only another one uses.
            "lib/base/unused.cc": LICENCE + '#include "lib/base/type.h"\nusing y::Type;\n',
            "lib/base/user.cc": LICENCE + '#include "lib/base/type.h"\nvoid d(y::Type) {}\n',
            "lib/base/bad.cc": head + "constexpr int badly_named = 3;\n}\nint a() { return badly_named; }\n}\n",
            "lib/base/good.cc": head + "constexpr int kNamed = 3;\n}\nint b() { return kNamed; }\n}\n",
            # Has a name of the file before once more, where the text does not tell.
            "lib/base/same.cc": head + "constexpr int\nkNamed = 4;\n}\nint c() { return kNamed; }\n}\n",
        }
        (code, output), (again, again_output) = self.tidy(files)
        if code == 77:
            self.skipTest(output)
        self.assertEqual((code, again), (1, 1), output + again_output)
        self.assertIn("lib/base/bad.cc:4:", output)
        self.assertIn("0 known, 5 checked", output)
        self.assertIn("3 known, 2 checked, 2 with findings", again_output)
        self.assertIn("lib/base/unused.cc:3:", output)
        self.assertNotIn("/build/tidy/", output)


if __name__ == "__main__":
    unittest.main()
