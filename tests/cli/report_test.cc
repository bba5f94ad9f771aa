// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/report.h"

#include "tests/support/catch.h"

using namespace rocenante::bench;

namespace {

Row make_row(const TypeInfo& type, const OpInfo& op, std::uint64_t bytes) {
  Row row;
  row.bytes = bytes;
  row.count = bytes / type.size;
  row.type = &type;
  row.op = &op;
  for (Measurement* const half : {&row.out_of_place, &row.in_place}) {
    half->iterations = 20;
    half->p50_us = 1.0 + static_cast<double>(bytes) / 1000.0;
    half->algbw_gbps = static_cast<double>(bytes) / half->p50_us / 1000.0;
    half->busbw_gbps = half->algbw_gbps;
    half->wrong = 0;
    half->algorithm = "one_shot";
  }
  return row;
}

RunInfo info() {
  return RunInfo{"0.1.0", 2, "shm", 20.0};
}

// Enough of a parser to see that elements nest and end; cli_test.py uses a real one.
bool balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.front() == '?' || tag.back() == '/') continue;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty();
}

// Coordinates are attributes, or pairs in an attribute.
bool all_finite(const std::string& svg) {
  for (const char* const bad : {"nan\"", "nan,", "nan ", "inf\"", "inf,", "inf "}) {
    if (svg.find(bad) != std::string::npos) return false;
  }
  return true;
}

std::size_t count_of(const std::string& whole, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = whole.find(part); at != std::string::npos; at = whole.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a plot has a line in each panel and a legend entry for each series") {
  std::vector<Row> rows;
  for (const TypeInfo& type : all_types()) {
    for (const OpInfo& op : all_ops()) {
      for (std::uint64_t bytes = 8; bytes <= 1 << 26; bytes *= 4) rows.push_back(make_row(type, op, bytes));
    }
  }
  const std::string svg = draw_plot(rows, info());
  CHECK(balanced(svg));
  const std::size_t series = all_types().size() * all_ops().size() * 2;
  CHECK(count_of(svg, "<polyline") == 2 * series);
  CHECK(count_of(svg, ", in place</text>") == series / 2);
  CHECK(count_of(svg, "size (bytes)") == 2);
  CHECK(all_finite(svg));
}

TEST_CASE("a plot of nothing, of empty calls, of one point and of one rank is still a plot") {
  const TypeInfo& type = *find_type("float");
  const OpInfo& op = *find_op("sum");
  Row single = make_row(type, op, 8);
  single.out_of_place.busbw_gbps = 0;
  single.in_place.busbw_gbps = 0;
  for (const std::vector<Row>& rows :
       {std::vector<Row>{}, std::vector<Row>{make_row(type, op, 0)}, std::vector<Row>{single}}) {
    const std::string svg = draw_plot(rows, info());
    CHECK(balanced(svg));
    CHECK(svg.find("nothing to show") != std::string::npos);
    CHECK(all_finite(svg));
  }
}

TEST_CASE("text that came from outside is escaped in a plot") {
  RunInfo odd = info();
  odd.transport = "<a&b>";
  const std::string svg = draw_plot({}, odd);
  CHECK(svg.find("&lt;a&amp;b&gt;") != std::string::npos);
  CHECK(balanced(svg));
}

TEST_CASE("an unchecked measurement has no number of wrong elements") {
  Row row = make_row(*find_type("float"), *find_op("sum"), 64);
  row.in_place.wrong.reset();
  const std::string checked = json_line(row, false, info());
  const std::string unchecked = json_line(row, true, info());
  CHECK(checked.find("\"wrong\":0") != std::string::npos);
  CHECK(unchecked.find("\"wrong\":null") != std::string::npos);
  CHECK(count_of(checked, "\n") == 1);
  CHECK(checked.back() == '\n');
}
