// A bar chart as SVG, for figures in docs/.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace windrow::bench {

// Groups of horizontal bars; a line stands at 1.
struct Chart {
  struct Bar {
    std::string label;
    double value;
    std::string note;
  };
  struct Group {
    std::string label;
    std::vector<Bar> bars;
  };
  std::string title;
  std::vector<Group> groups;

  std::string svg() const {
    static constexpr int kBar = 12, kGap = 14, kLeft = 240, kWidth = 420, kTop = 44;
    static constexpr double kMost = 6;  // longer bars are cut, their number says how long
    constexpr const char* kColors[] = {"#2a6fdb", "#5aa9e6", "#7bc8a4", "#c9c9c9", "#e08a5b", "#b07aa1"};
    const auto x = [](double v) { return kLeft + kWidth * std::min(v, kMost) / kMost; };
    int y = kTop;
    std::string body;
    for (const Group& group : groups) {
      const auto middle = y + static_cast<int>(group.bars.size()) * kBar / 2 + 4;
      body += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 90, middle,
                          group.label);
      for (std::size_t i = 0; i < group.bars.size(); i++, y += kBar) {
        const Bar& bar = group.bars[i];
        body += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n",
                            kLeft - 6, y + kBar - 2, bar.label);
        body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", kLeft,
                            y, x(bar.value) - kLeft, kBar - 2, kColors[i % std::size(kColors)]);
        body += fmt::format("<text x=\"{:.1f}\" y=\"{}\" fill=\"#555\">{:.2f} ({})</text>\n",
                            x(bar.value) + 4, y + kBar - 2, bar.value, bar.note);
      }
      y += kGap;
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
        "font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"10\" y=\"20\" font-size=\"13\">{}</text>\n{}"
        "<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"black\" stroke-dasharray=\"3 "
        "2\"/>\n</svg>\n",
        kLeft + kWidth + 120, y, title, body, x(1), kTop - 8, x(1), y - kGap);
  }
};

}  // namespace windrow::bench
