// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/perf.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "bench/cli/communicator.h"
#include "bench/cli/measure.h"
#include "bench/cli/report.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_report(const char* argument, const std::string& path) {
  File file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) {
    throw RunError(text("%s '%s': cannot be written: %s", argument, path.c_str(), std::strerror(errno)));
  }
  return file;
}

void write_report(std::FILE* file, const std::string& content, const char* argument,
                  const std::string& path) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (!written || std::fflush(file) != 0) {
    throw RunError(text("%s '%s': cannot be written: %s", argument, path.c_str(), std::strerror(errno)));
  }
}

// What rank 0 does with the results.
class Reporter {
 public:
  Reporter(const PerfOptions& options, const RunInfo& info)
      : options_(options), info_(info), progress_(isatty(STDERR_FILENO) != 0) {
    if (options.json == "-") {
      table_ = stderr;
    } else if (!options.json.empty()) {
      json_ = open_report("--json", options.json);
    }
    if (!options.plot.empty()) plot_ = open_report("--plot", options.plot);
    print_header(table_, options, info);
  }

  void starting(const TypeInfo& type, const OpInfo& op, std::uint64_t bytes) const {
    if (progress_)
      std::fprintf(stderr, "\r\033[K%s %s %s ...", type.name, op.name, size_name(bytes).c_str());
  }

  void finished(const Row& row) {
    if (progress_) std::fprintf(stderr, "\r\033[K");
    print_row(table_, row);
    const bool to_stdout = options_.json == "-";
    if (json_ != nullptr || to_stdout) {
      write_report(to_stdout ? stdout : json_.get(),
                   json_line(row, false, info_) + (row.has_in_place ? json_line(row, true, info_) : ""),
                   "--json", options_.json);
    }
    busbw_ += row.out_of_place.busbw_gbps + row.in_place.busbw_gbps;
    measurements_ += row.has_in_place ? 2 : 1;
    if (plot_ != nullptr) rows_.push_back(row);
  }

  void finish(std::uint64_t wrong) {
    print_footer(table_, wrong, measurements_ == 0 ? 0.0 : busbw_ / measurements_, options_.checks != 0);
    if (plot_ != nullptr) write_report(plot_.get(), draw_plot(rows_, info_), "--plot", options_.plot);
    if (std::ferror(stdout) != 0) throw RunError("standard output cannot be written");
  }

 private:
  const PerfOptions& options_;
  const RunInfo& info_;
  std::FILE* table_ = stdout;
  File json_;
  File plot_;
  bool progress_;
  std::vector<Row> rows_;
  double busbw_ = 0;
  double measurements_ = 0;
};

}  // namespace

int run_rank(const PerfOptions& options, const rcnUniqueId& id, int rank) {
  Communicator comm(id, options.ranks, rank, options.transport);
  Meter meter(comm, options);
  RunInfo info;
  info.version = library_version();
  info.collective = options.collective->name;
  info.ranks = options.ranks;
  info.transport = comm.transport_names();
  info.clock_ns = clock_cost_ns();
  std::unique_ptr<Reporter> reporter;
  if (rank == 0) reporter = std::make_unique<Reporter>(options, info);

  std::uint64_t wrong = 0;
  for (const TypeInfo* const type : options.types) {
    for (const OpInfo* const op : options.ops) {
      for (std::optional<std::uint64_t> bytes = options.min_bytes; bytes;
           bytes = next_size(options, *bytes)) {
        if (reporter != nullptr) reporter->starting(*type, *op, *bytes);
        const Row row = meter.measure(*type, *op, *bytes);
        wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
        if (reporter != nullptr) reporter->finished(row);
      }
    }
  }
  if (reporter != nullptr) reporter->finish(wrong);
  comm.leave();
  return wrong == 0 ? kExitOk : kExitWrong;
}

}  // namespace rocenante::bench
