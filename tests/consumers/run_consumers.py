#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's projects, in C and in C++, build and run with what a build installs, and with the build folder
itself; each by the CMake package and by pkg-config. The prefix is moved after the installation."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("--cc", required=True)
parser.add_argument("--cxx", required=True)
parser.add_argument("--version", required=True)
options, remaining = parser.parse_known_args()


def run(*command, **environment):
    # A search path of the caller's could find the library that the installation lost.
    clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(list(map(str, command)), env={**clean, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Consumers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="rocenante-consumers-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("cmake", "--install", options.build, "--prefix", cls.folder / "first")
        cls.prefix = (cls.folder / "first").rename(cls.folder / "second")
        library, = cls.prefix.glob("lib*/**/librocenante.so.1")
        cls.libdir = library.parent

    def test_what_is_installed(self):
        found = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if not path.is_dir()}
        libdir = self.libdir.relative_to(self.prefix)
        expected = {
            "bin/rocenante",
            "include/rocenante/rocenante.h",
            f"{libdir}/librocenante.so",
            f"{libdir}/librocenante.so.1",
            f"{libdir}/librocenante.so.{options.version}",
            f"{libdir}/rocenante/nccl/libnccl.so",
            f"{libdir}/rocenante/nccl/libnccl.so.2",
            f"{libdir}/cmake/rocenante/rocenante-config.cmake",
            f"{libdir}/cmake/rocenante/rocenante-config-version.cmake",
            f"{libdir}/cmake/rocenante/rocenante-targets.cmake",
            f"{libdir}/pkgconfig/rocenante.pc",
            "share/doc/rocenante/LICENSE",
            "share/doc/rocenante/THIRD_PARTY_NOTICES",
            "share/man/man1/rocenante.1",
            "share/man/man1/rocenante-perf.1",
        }
        # The targets file has one companion, named after the build type.
        found = {name for name in found if not re.search(r"/rocenante-targets-\w+\.cmake$", name)}
        self.assertEqual(found, expected)

    def test_nothing_installed_names_the_build(self):
        for path in self.prefix.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for folder in (options.build.resolve(), HERE.parents[1], self.folder / "first"):
                    self.assertNotIn(bytes(folder), content, path)

    def test_the_command_runs(self):
        self.assertIn("rocenante", run(self.prefix / "bin/rocenante", "--version"))
        run(self.prefix / "bin/rocenante", "perf", "all_reduce", "--ranks", "2", "-e", "1K", "-n", "2")

    def test_the_command_finds_the_library_in_nccl_s_place(self):
        found = run(self.prefix / "bin/rocenante", "run", "-q", "--", "sh", "-c", 'echo "$LD_PRELOAD"').strip()
        self.assertEqual(found, str(self.libdir / "rocenante/nccl/libnccl.so.2"))
        ask = ("import ctypes; library = ctypes.CDLL('libnccl.so'); version = ctypes.c_int(); "
               "print(library.ncclGetVersion(ctypes.byref(version)), version.value)")
        asked = run(self.prefix / "bin/rocenante", "run", "-q", "--fallback", "off", "--", sys.executable, "-c", ask)
        self.assertEqual(asked, "0 22809\n")

    def check_programs(self, folder, **environment):
        self.assertEqual(run(folder / "consumer_c", **environment), "sums 42 42\n")
        self.assertEqual(run(folder / "consumer_cpp", **environment), "sums 6 6 6\n")

    def by_cmake(self, prefix, name):
        build = self.folder / name
        run("cmake", "-G", "Ninja", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={options.cc}",
            f"-DCMAKE_CXX_COMPILER={options.cxx}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
        run("cmake", "--build", build)
        cache = (build / "CMakeCache.txt").read_text()
        self.assertIn(f"{prefix}/", re.search(r"^rocenante_DIR:PATH=(.*)$", cache, re.MULTILINE)[1])
        self.check_programs(build)

    def by_pkg_config(self, libdir, name):
        build = self.folder / name
        build.mkdir()
        flags = run("pkg-config", "--cflags", "--libs", "rocenante", PKG_CONFIG_LIBDIR=str(libdir / "pkgconfig")).split()
        self.assertEqual(run("pkg-config", "--modversion", "rocenante", PKG_CONFIG_LIBDIR=str(libdir / "pkgconfig")),
                         options.version + "\n")
        run(options.cc, HERE / "consumer.c", "-o", build / "consumer_c", *flags)
        run(options.cxx, "-std=c++17", "-pthread", HERE / "consumer.cpp", "-o", build / "consumer_cpp", *flags)
        self.check_programs(build, LD_LIBRARY_PATH=str(libdir))

    def test_a_prefix_by_cmake(self):
        self.by_cmake(self.prefix, "prefix-cmake")

    def test_a_build_folder_by_cmake(self):
        self.by_cmake(options.build, "build-cmake")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_prefix_by_pkg_config(self):
        self.by_pkg_config(self.libdir, "prefix-pkg-config")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_build_folder_by_pkg_config(self):
        self.by_pkg_config(options.build / "lib", "build-pkg-config")

    def test_a_build_folder_works_where_it_is_copied_to(self):
        copy = self.folder / "copied"
        for part in ("bin/rocenante", "lib/librocenante.so.1"):
            (copy / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(options.build / part, copy / part)
        loaded = run(copy / "bin" / "rocenante", LD_TRACE_LOADED_OBJECTS="1")
        self.assertIn(f"librocenante.so.1 => {copy}/bin/../lib/librocenante.so.1 ", loaded)
        self.assertIn(options.version, run(copy / "bin" / "rocenante", "--version"))

    def test_another_version_is_not_taken(self):
        source = self.folder / "wrong-version"
        source.mkdir()
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES NONE)\n"
                                               "find_package(rocenante 9.0 REQUIRED)\n")
        with self.assertRaisesRegex(AssertionError, "compatible with requested\\s+version \"9.0\""):
            run("cmake", "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *remaining])
