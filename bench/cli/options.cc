// SPDX-License-Identifier: Apache-2.0
//
// The shape of the command line and its help. Values stay text here and are judged in perf_options.cc,
// which keeps this the one file that pays for the parser's header.
#include "bench/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "bench/cli/text.h"
#include "rocenante/rocenante.h"

namespace rocenante::bench {

namespace {

std::string version_text() {
  int library = 0;
  rcnGetVersion(&library);
  return text("rocenante %s (library %s)", version_name(RCN_VERSION_CODE).c_str(),
              version_name(library).c_str());
}

template <typename Infos>
std::string names(const Infos& infos) {
  std::vector<std::string> all;
  for (const auto& info : infos) all.emplace_back(info.name);
  return join(all, " ");
}

CLI::Option* add(CLI::App* app, const char* flags, std::string& value, const char* type,
                 const std::string& help, const char* group) {
  CLI::Option* const option = app->add_option(flags, value, help)->type_name(type)->group(group);
  if (!value.empty()) option->default_str(value);
  return option;
}

void add_perf(CLI::App& app, PerfArguments& arguments) {
  CLI::App* const perf = app.add_subcommand("perf", "Measure and check a collective over host memory");
  perf->set_help_flag("-h,--help", "Print this help and exit");
  perf->add_option("COLLECTIVE", arguments.collective, "What to measure: " + names(all_collectives()))
      ->type_name("")
      ->required();

  const char* const sizes = "Sizes and counts";
  add(perf, "-b,--minbytes", arguments.min_bytes, "SIZE",
      "Smallest size in bytes; K, M, G are powers of 1024", sizes);
  add(perf, "-e,--maxbytes", arguments.max_bytes, "SIZE", "Largest size in bytes", sizes);
  CLI::Option* const factor = add(perf, "-f,--stepfactor", arguments.step_factor, "NUMBER",
                                  "Each size is the one before times this, 2 or more", sizes);
  add(perf, "-i,--stepbytes", arguments.step_bytes, "SIZE",
      "Each size is the one before plus this many bytes; 0 uses --stepfactor", sizes);
  add(perf, "-n,--iters", arguments.iters, "NUMBER", "Timed calls per measurement", sizes);
  add(perf, "-w,--warmup_iters", arguments.warmup_iters, "NUMBER", "Untimed calls before them", sizes);
  add(perf, "-c,--check", arguments.check, "NUMBER",
      "Checked calls after them, each with values of its own; 0 checks nothing", sizes);

  const char* const what = "Data";
  add(perf, "-d,--datatype", arguments.type, "LIST",
      "Data types, separated by commas, or all:\n" + names(all_types()) +
          ".\nAliases: f16 float16, f32 float32, f64 float64, bf16, fp8_e4m3, fp8_e5m2",
      what);
  add(perf, "-o,--op", arguments.op, "LIST", "Operators, separated by commas, or all: " + names(all_ops()),
      what);
  add(perf, "-r,--root", arguments.root, "NUMBER", "Root of a broadcast or a reduce", what);
  perf->add_flag(
          "--fresh", arguments.fresh,
          "Write new values into the send buffer before each call, outside the timed span. Without it\n"
          "in-place calls reduce their own results, whose values soon overflow")
      ->group(what);

  const char* const ranks = "Ranks";
  add(perf, "--ranks", arguments.ranks, "NUMBER",
      "Start this many rank processes here, 1 to 1024. Under mpirun, mpiexec, srun or torchrun every "
      "process\n"
      "starts that many, and the default is 1",
      ranks)
      ->default_str("2");
  add(perf, "--transport", arguments.transport, "NAME",
      "Transport to use, as ROCENANTE_TRANSPORT: auto, shm, tcp, ...", ranks);
  add(perf, "--bind", arguments.bind, "core|none",
      "Bind the ranks that --ranks starts to processors, dealt in turn", ranks);
  add(perf, "--grace", arguments.grace, "SECONDS",
      "After a rank died, the others get this long to report it before they are killed", ranks);
  add(perf, "--rank", arguments.rank, "NUMBER",
      "Be this rank of a world whose other ranks are started elsewhere", ranks);
  add(perf, "--world", arguments.world, "NUMBER", "Number of ranks of that world", ranks);
  add(perf, "--launcher", arguments.launcher, "auto|none",
      "auto takes number and count of processes from the environment of mpirun, mpiexec, srun or "
      "torchrun;\n"
      "none ignores it",
      ranks);
  add(perf, "--rendezvous", arguments.rendezvous, "HOST:PORT",
      "Where its ranks meet: an address of rank 0's host. Other than on loopback, all ranks need the same\n"
      "ROCENANTE_SECRET or ROCENANTE_SECRET_FILE",
      ranks);
  add(perf, "--launched", arguments.launched, "RANK:FD:WORLD", "", "");

  const char* const output = "Output";
  add(perf, "--json", arguments.json, "FILE",
      "Also write one JSON object per measurement and line; '-' is standard output and moves the table to\n"
      "standard error",
      output);
  add(perf, "--plot", arguments.plot, "FILE.svg", "Also draw latency and bus bandwidth over size", output);
  perf->footer(
      "Options and table are those of nccl-tests. Every call is timed on every rank by itself, with no "
      "barrier\n"
      "between calls; a row shows the median of the slowest rank. algbw is bytes / time, busbw is\n"
      "algbw times 2 (n - 1) / n for all_reduce, 1 for broadcast and reduce, (n - 1) / n for the others, "
      "both in "
      "GB/s\n"
      "(10^9 bytes per second). A size is that of the larger buffer, a count that of one rank's block. "
      "Results of the checked calls are "
      "compared on\n"
      "every rank, bit by bit, with the exact result; #wrong counts the elements that differ, over all "
      "ranks.\n"
      "Ctrl-C ends all ranks.\n"
      "\n"
      "Exit codes: 0 all well; 1 a checked call had wrong elements; 2 bad arguments, nothing was run;\n"
      "3 the library or the system reported an error, or a rank died.\n"
      "\n"
      "Examples:\n"
      "  rocenante perf all_reduce --ranks 4 -b 1K -e 1M -d float,bfloat16 --json results.jsonl\n"
      "  rocenante perf all_reduce --rank 0 --world 2 --rendezvous 192.168.1.1:7000    on the first host\n"
      "  rocenante perf all_reduce --rank 1 --world 2 --rendezvous 192.168.1.1:7000    on the second\n"
      "  mpirun -n 2 rocenante perf all_reduce                  docs/multi-node.md has more of these");
  perf->parse_complete_callback(
      [&arguments, factor] { arguments.step_factor_given = factor->count() > 0; });
}

bool is_command(std::string_view word) {
  return word == "perf" || word == "info" || word == "run";
}

void add_info(CLI::App& app, bool& config) {
  CLI::App* const info = app.add_subcommand("info", "Describe the library and what it would use here");
  info->set_help_flag("-h,--help", "Print this help and exit");
  info->description(
      "Print the library's version and build, the processor targets, and what it would use here and why.");
  info->add_flag("--config", config, "Print the settings in force instead, and where each comes from");
}

void add_run(CLI::App& app, RunArguments& arguments) {
  CLI::App* const run =
      app.add_subcommand("run", "Run a program that uses NCCL with RoCEnante in its place");
  run->set_help_flag("-h,--help", "Print this help and exit");
  run->description(
      "Run a program so that its calls of NCCL reach RoCEnante's libnccl.so.2, and say what it will pick "
      "up:\n"
      "rocenante run [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  run->add_option("--device", arguments.device, "Set ROCENANTE_DEVICE")->type_name("auto|host|cuda");
  run->add_option("--fallback", arguments.fallback, "Set ROCENANTE_FALLBACK")
      ->type_name("auto|off|require");
  run->add_option("--nccl", arguments.nccl, "Set ROCENANTE_NCCL_PATH: the real NCCL, a file or its folder")
      ->type_name("PATH");
  run->add_flag("-q,--quiet", arguments.quiet, "Do not say what will be picked up");
  run->prefix_command();
}

}  // namespace

Command parse_command_line(int argc, char** argv) {
  Command command;
  CLI::App app("RoCEnante: collective communication with one exchange per call", "rocenante");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag(
      "--version", [] { return version_text(); }, "Print the versions and exit");
  app.require_subcommand(1);
  app.get_formatter()->column_width(32);
  app.footer(
      "Help on a command: rocenante COMMAND --help\n"
      "Settings of the library are read from ROCENANTE_* variables: rocenante info --config");
  add_perf(app, command.perf);
  add_info(app, command.info_config);
  add_run(app, command.run);

  if (argc > 1 && argv[1][0] != '-' && !is_command(argv[1])) {
    throw UsageError(text("COMMAND '%s': must be perf, info or run (see rocenante --help)", argv[1]));
  }
  // What follows "--" is somebody else's.
  const auto end =
      std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
  if (is_run && end != argv + argc) {
    command.run.command.assign(end + 1, argv + argc);
    argc = static_cast<int>(end - argv);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success, std::cout, std::cerr);
    return command;
  } catch (const CLI::ParseError& error) {
    const char* const scope = app.got_subcommand("perf")   ? " perf"
                              : app.got_subcommand("info") ? " info"
                              : app.got_subcommand("run")  ? " run"
                                                           : "";
    throw UsageError(text("%s (see rocenante%s --help)", error.what(), scope));
  }
  if (app.got_subcommand("run")) {
    const std::vector<std::string> words = app.get_subcommand("run")->remaining();
    command.run.command.insert(command.run.command.begin(), words.begin(), words.end());
    command.kind = Command::Kind::kRun;
    return command;
  }
  command.kind = app.got_subcommand("perf") ? Command::Kind::kPerf : Command::Kind::kInfo;
  return command;
}

}  // namespace rocenante::bench
