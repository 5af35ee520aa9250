#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace windrow::cli {
namespace {

constexpr double kLeft = 84, kTop = 44, kWidth = 560, kHeight = 380, kRight = 24, kBottom = 56;
constexpr const char* kColors[] = {"#2a6fdb", "#e08a5b", "#3f9b6c", "#b07aa1", "#c44e52", "#8c8c8c"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

bool visible(const Plot::Point& p) { return p.x > 0 && p.y > 0 && std::isfinite(p.x) && std::isfinite(p.y); }

// Logarithms to a base, between whole powers of it.
struct Axis {
  double base;
  int low = 0, high = 1;  // powers

  template <class Value>
  void fit(const std::vector<Plot::Series>& all, const Value& value) {
    bool any = false;
    for (const Plot::Series& series : all) {
      for (const Plot::Point& p : series.points) {
        if (!visible(p)) continue;
        const double power = std::log(value(p)) / std::log(base);
        const int below = static_cast<int>(std::floor(power)), above = static_cast<int>(std::ceil(power));
        low = any ? std::min(low, below) : below;
        high = any ? std::max(high, above) : above;
        any = true;
      }
    }
    high = std::max(high, low + 1);
  }
  // 0 at the low end, 1 at the high end.
  double place(double v) const { return (std::log(v) / std::log(base) - low) / (high - low); }
  double tick(int power) const { return std::pow(base, power); }
};

double x_of(const Axis& axis, double v) { return kLeft + kWidth * axis.place(v); }
double y_of(const Axis& axis, double v) { return kTop + kHeight * (1 - axis.place(v)); }

std::string grid(const Axis& x, const Axis& y) {
  std::string text;
  for (int p = x.low; p <= x.high; p++) {
    const double at = x_of(x, x.tick(p));
    text += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#e4e4e4\"/>\n",
                        at, kTop, kTop + kHeight);
    text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{:g}</text>\n", at,
                        kTop + kHeight + 16, x.tick(p));
  }
  for (int p = y.low; p <= y.high; p++) {
    const double at = y_of(y, y.tick(p));
    text += fmt::format("<line x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\" stroke=\"#e4e4e4\"/>\n",
                        at, kLeft, kLeft + kWidth);
    text += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">1e{}</text>\n",
                        kLeft - 6, at + 4, p);
  }
  return text;
}

std::string draw(const Plot::Series& series, const char* color, const Axis& x, const Axis& y) {
  std::string line, marks;
  for (const Plot::Point& p : series.points) {
    if (!visible(p)) continue;
    const double px = x_of(x, p.x), py = y_of(y, p.y);
    line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", px, py);
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", px, py,
                         series.line ? 3.5 : 6.0, color);
    marks += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", px + 6, py - 5, color,
                         escaped(p.label));
  }
  if (!series.line || line.empty()) return marks;
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", line, color) + marks;
}

}  // namespace

std::string Plot::svg() const {
  Axis x{2}, y{10};
  x.fit(series, [](const Point& p) { return p.x; });
  y.fit(series, [](const Point& p) { return p.y; });
  std::string body = grid(x, y), legend;
  for (std::size_t i = 0; i < series.size(); i++) {
    const char* color = kColors[i % std::size(kColors)];
    body += draw(series[i], color, x, y);
    const double at = kTop + 18 + 16 * static_cast<double>(i);
    legend +=
        fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                    kLeft + kWidth - 200, at - 4, color, kLeft + kWidth - 190, at, escaped(series[i].name));
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}</text>\n{4}"
      "<rect x=\"{2}\" y=\"{5}\" width=\"{6}\" height=\"{7}\" fill=\"none\" stroke=\"#888\"/>\n{8}"
      "<text x=\"{9}\" y=\"{10}\" text-anchor=\"middle\">{11}</text>\n"
      "<text transform=\"translate(20 {12}) rotate(-90)\" text-anchor=\"middle\">{13}</text>\n</svg>\n",
      kLeft + kWidth + kRight, kTop + kHeight + kBottom, kLeft, escaped(title), body, kTop, kWidth, kHeight,
      legend, kLeft + kWidth / 2, kTop + kHeight + 40, escaped(x_label), kTop + kHeight / 2,
      escaped(y_label));
}

}  // namespace windrow::cli
