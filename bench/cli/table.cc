// SPDX-License-Identifier: Apache-2.0
//
// The table of nccl-tests, column for column, so that scripts that read one can read the other.
#include "bench/cli/report.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

// Three significant digits, as wide as they need.
std::string time_text(double us) {
  return text("%.*f", us < 10.0 ? 2 : us < 100.0 ? 1 : 0, us);
}

std::string bandwidth_text(double gbps) {
  return text("%.2f", gbps);
}

std::string half_row(const Measurement* half) {
  if (half == nullptr) return text("  %8s %7s %7s %7s", "N/A", "N/A", "N/A", "N/A");
  const Measurement& measured = *half;
  const std::string wrong =
      measured.wrong ? text("%llu", static_cast<unsigned long long>(*measured.wrong)) : "N/A";
  return text("  %8s %7s %7s %7s", time_text(measured.p50_us).c_str(),
              bandwidth_text(measured.algbw_gbps).c_str(), bandwidth_text(measured.busbw_gbps).c_str(),
              wrong.c_str());
}

}  // namespace

void print_header(std::FILE* out, const PerfOptions& options, const RunInfo& info) {
  const std::string step = options.step_bytes != 0
                               ? text("%llu(bytes)", static_cast<unsigned long long>(options.step_bytes))
                               : text("%llu(factor)", static_cast<unsigned long long>(options.step_factor));
  std::fprintf(out, "# rocenante %s perf %s\n", info.version.c_str(), info.collective.c_str());
  std::fprintf(out, "# ranks %d transport %s\n", info.ranks, info.transport.c_str());
  std::fprintf(
      out, "# minBytes %llu maxBytes %llu step: %s warmup iters: %llu iters: %llu validation: %llu%s\n",
      static_cast<unsigned long long>(options.min_bytes),
      static_cast<unsigned long long>(options.max_bytes), step.c_str(),
      static_cast<unsigned long long>(options.warmup_iters), static_cast<unsigned long long>(options.iters),
      static_cast<unsigned long long>(options.checks), options.fresh ? " fresh" : "");
  std::fprintf(
      out,
      "# time: median of the slowest rank; one reading of the clock takes %.0f ns, not subtracted\n#\n",
      info.clock_ns);
  std::fprintf(out, "# %10s  %12s  %8s  %6s  %5s  %32s  %32s\n", "", "", "", "", "",
               "out-of-place          ", "in-place            ");
  const std::string names = text("  %8s %7s %7s %7s", "time", "algbw", "busbw", "#wrong");
  const std::string units = text("  %8s %7s %7s %7s", "(us)", "(GB/s)", "(GB/s)", "");
  std::fprintf(out, "# %10s  %12s  %8s  %6s  %5s%s%s\n", "size", "count", "type", "redop", "root",
               names.c_str(), names.c_str());
  std::fprintf(out, "# %10s  %12s  %8s  %6s  %5s%s%s\n", "(B)", "(elements)", "", "", "", units.c_str(),
               units.c_str());
  std::fflush(out);
}

void print_row(std::FILE* out, const Row& row) {
  std::fprintf(out, "%12llu  %12llu  %8s  %6s  %5d%s%s\n", static_cast<unsigned long long>(row.bytes),
               static_cast<unsigned long long>(row.count), row.type->name, row.op->name, row.root,
               half_row(&row.out_of_place).c_str(),
               half_row(row.has_in_place ? &row.in_place : nullptr).c_str());
  std::fflush(out);
}

void print_footer(std::FILE* out, std::uint64_t wrong, double average_busbw_gbps, bool checked) {
  std::fprintf(out, "# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong),
               !checked     ? "(not checked)"
               : wrong == 0 ? "OK"
                            : "FAILED");
  std::fprintf(out, "# Avg bus bandwidth    : %g\n#\n", average_busbw_gbps);
  std::fflush(out);
}

}  // namespace rocenante::bench
