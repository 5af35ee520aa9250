// A plot of points on logarithmic axes, as SVG.
#pragma once

#include <string>
#include <vector>

namespace windrow::cli {

struct Plot {
  struct Point {
    double x = 0, y = 0;  // above 0: others are left out
    std::string label;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;
    bool line = true;  // joins the points in their order
  };
  std::string title, x_label, y_label;
  std::vector<Series> series;

  // Axes from the decade (y) or the power of two (x) below all points to the one above them. Any text may
  // stand in labels. Without a point the frame alone.
  std::string svg() const;
};

}  // namespace windrow::cli
