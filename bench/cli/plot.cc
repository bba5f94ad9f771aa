// SPDX-License-Identifier: Apache-2.0
//
// Latency and bus bandwidth over size as an SVG document: two panels with logarithmic axes, one colour per
// data type and operator, in-place dashed.
#include <algorithm>
#include <cmath>

#include "bench/cli/report.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

constexpr double kPanelWidth = 440;
constexpr double kPanelHeight = 330;
constexpr double kPanelTop = 78;
constexpr double kLeftPanel = 84;
constexpr double kRightPanel = 634;
constexpr double kWidth = 1100;
constexpr double kLegendTop = kPanelTop + kPanelHeight + 76;
constexpr double kLegendLine = 20;
constexpr int kLegendColumns = 4;

// Distinguishable also without full colour vision; further series repeat them.
constexpr const char* kColours[] = {"#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a",
                                    "#66a61e", "#8c564b", "#e6ab02", "#17a2b8", "#444444"};

struct Point {
  double x;
  double y;
};

struct Series {
  std::string name;
  const char* colour;
  bool dashed;
  std::vector<Point> latency;
  std::vector<Point> busbw;
};

// A logarithmic axis from pixel `start` to pixel `end`, over whole powers of `base`.
struct Axis {
  double base;
  double start;
  double end;
  int low;  // exponents of base
  int high;

  double at(double value) const {
    const double exponent = std::log(value) / std::log(base);
    return start + (exponent - low) / (high - low) * (end - start);
  }
};

Axis make_axis(double base, double start, double end, double smallest, double largest) {
  // The margin keeps a value that is a power of the base, but for rounding, on its own tick.
  constexpr double kMargin = 1e-9;
  Axis axis{base, start, end, static_cast<int>(std::floor(std::log(smallest) / std::log(base) + kMargin)),
            static_cast<int>(std::ceil(std::log(largest) / std::log(base) - kMargin))};
  if (axis.high <= axis.low) axis.high = axis.low + 1;
  return axis;
}

std::string size_tick(int exponent) {
  std::string name = size_name(std::uint64_t{1} << exponent);
  name.erase(name.find(' '), 1);  // "64KiB" is narrow enough to stand beside its neighbours
  return name;
}

// Powers of ten as plain decimals: 0.001, 1, 100, 100k.
std::string decimal_tick(int exponent) {
  if (exponent < 0) return text("%.*f", -exponent, std::pow(10.0, exponent));
  if (exponent < 5) return text("%.0f", std::pow(10.0, exponent));
  return text("%.0fk", std::pow(10.0, exponent - 3));
}

void label(std::string& out, double x, double y, const char* anchor, const std::string& content,
           const char* extra = "") {
  out += text("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, extra,
              content.c_str());
}

void line(std::string& out, double x1, double y1, double x2, double y2, const char* colour) {
  out += text("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
              colour);
}

void draw_series(std::string& out, const Series& series, const std::vector<Point>& points, const Axis& x,
                 const Axis& y) {
  if (points.empty()) return;
  std::string path;
  for (const Point& point : points) path += text("%.1f,%.1f ", x.at(point.x), y.at(point.y));
  path.pop_back();
  out += text("<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s/>\n",
              path.c_str(), series.colour, series.dashed ? " stroke-dasharray=\"6 4\"" : "");
  for (const Point& point : points) {
    out += text("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\" stroke=\"%s\"/>\n", x.at(point.x),
                y.at(point.y), series.dashed ? "#ffffff" : series.colour, series.colour);
  }
}

void draw_panel(std::string& out, double left, const char* title, const char* unit,
                const std::vector<Series>& all, std::vector<Point> Series::*points) {
  const double bottom = kPanelTop + kPanelHeight;
  label(out, left + kPanelWidth / 2, kPanelTop - 14, "middle", title,
        " font-size=\"14\" font-weight=\"bold\"");
  double bounds[4] = {HUGE_VAL, 0, HUGE_VAL, 0};
  for (const Series& series : all) {
    for (const Point& point : series.*points) {
      bounds[0] = std::min(bounds[0], point.x);
      bounds[1] = std::max(bounds[1], point.x);
      bounds[2] = std::min(bounds[2], point.y);
      bounds[3] = std::max(bounds[3], point.y);
    }
  }
  out += text(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fafafa\" stroke=\"none\"/>\n",
      left, kPanelTop, kPanelWidth, kPanelHeight);
  if (bounds[1] == 0) {
    label(out, left + kPanelWidth / 2, kPanelTop + kPanelHeight / 2, "middle", "nothing to show");
    return;
  }
  const Axis x = make_axis(2, left, left + kPanelWidth, bounds[0], bounds[1]);
  const Axis y = make_axis(10, bottom, kPanelTop, bounds[2], bounds[3]);

  constexpr int kMostSizeTicks = 9;
  const int step = (x.high - x.low + kMostSizeTicks - 1) / kMostSizeTicks;
  for (int exponent = x.low; exponent <= x.high; exponent += step) {
    const double at = x.at(std::ldexp(1.0, exponent));
    line(out, at, kPanelTop, at, bottom, "#dddddd");
    label(out, at, bottom + 18, "middle", size_tick(exponent));
  }
  for (int exponent = y.low; exponent <= y.high; ++exponent) {
    const double at = y.at(std::pow(10.0, exponent));
    line(out, left, at, left + kPanelWidth, at, "#cccccc");
    label(out, left - 8, at + 4, "end", decimal_tick(exponent));
    for (int digit = 2; digit <= 9 && exponent < y.high; ++digit) {
      const double minor = y.at(digit * std::pow(10.0, exponent));
      line(out, left, minor, left + kPanelWidth, minor, "#eeeeee");
    }
  }
  for (const Series& series : all) draw_series(out, series, series.*points, x, y);
  out += text(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#555555\"/>\n",
      left, kPanelTop, kPanelWidth, kPanelHeight);
  label(out, left + kPanelWidth / 2, bottom + 42, "middle", "size (bytes)");
  const double middle = kPanelTop + kPanelHeight / 2;
  const double beside = left - 58;
  label(out, beside, middle, "middle", unit,
        text(" transform=\"rotate(-90 %.1f %.1f)\"", beside, middle).c_str());
}

std::vector<Series> collect(const std::vector<Row>& rows) {
  std::vector<Series> all;
  std::size_t colour = 0;
  const TypeInfo* type = nullptr;
  const OpInfo* op = nullptr;
  for (const Row& row : rows) {
    if (row.type != type || row.op != op) {
      type = row.type;
      op = row.op;
      const char* const chosen = kColours[colour++ % std::size(kColours)];
      const std::string name = text("%s %s", type->name, op->name);
      all.push_back(Series{name + ", out of place", chosen, false, {}, {}});
      if (row.has_in_place) all.push_back(Series{name + ", in place", chosen, true, {}, {}});
    }
    const auto add = [&row](Series& series, const Measurement& measured) {
      // A logarithmic axis has no place for zero.
      const auto bytes = static_cast<double>(row.bytes);
      if (row.bytes != 0 && measured.p50_us > 0) series.latency.push_back({bytes, measured.p50_us});
      if (row.bytes != 0 && measured.busbw_gbps > 0) series.busbw.push_back({bytes, measured.busbw_gbps});
    };
    add(all[all.size() - (row.has_in_place ? 2 : 1)], row.out_of_place);
    if (row.has_in_place) add(all.back(), row.in_place);
  }
  return all;
}

std::string escape(const std::string& raw) {
  std::string out;
  for (const char c : raw) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string draw_plot(const std::vector<Row>& rows, const RunInfo& info) {
  const std::vector<Series> all = collect(rows);
  const auto lines = (all.size() + kLegendColumns - 1) / kLegendColumns;
  const double height = kLegendTop + kLegendLine * static_cast<double>(lines) + 12;
  std::string out = text(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, height, kWidth, height);
  const std::string title = text("%s, %d rank%s, %s, rocenante %s", info.collective.c_str(), info.ranks,
                                 info.ranks == 1 ? "" : "s", info.transport.c_str(), info.version.c_str());
  label(out, kWidth / 2, 30, "middle", escape(title), " font-size=\"17\" font-weight=\"bold\"");
  draw_panel(out, kLeftPanel, "Latency", "time of the slowest rank, median (&#181;s)", all,
             &Series::latency);
  draw_panel(out, kRightPanel, "Bus bandwidth", "bus bandwidth (GB/s)", all, &Series::busbw);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double x = 60 + static_cast<double>(i % kLegendColumns) * (kWidth - 80) / kLegendColumns;
    const std::size_t row = i / kLegendColumns;
    const double y = kLegendTop + kLegendLine * static_cast<double>(row);
    const Series& series = all[i];
    out += text(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"1.6\"%s/>\n", x,
        y, x + 30, y, series.colour, series.dashed ? " stroke-dasharray=\"6 4\"" : "");
    out += text("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\" stroke=\"%s\"/>\n", x + 15, y,
                series.dashed ? "#ffffff" : series.colour, series.colour);
    label(out, x + 38, y + 4, "start", escape(series.name));
  }
  out += "</svg>\n";
  return out;
}

}  // namespace rocenante::bench
