#include "study/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ac::study {
namespace {

constexpr double kWidth = 900, kHeight = 520;
constexpr double kLeft = 70, kRight = 250, kTop = 50, kBottom = 60;
// Told apart by most eyes; the tenth begins anew, dashed.
constexpr std::array<const char*, 9> kColours = {"#0072b2", "#d55e00", "#009e73",
                                                 "#cc79a7", "#56b4e9", "#e69f00",
                                                 "#000000", "#8c564b", "#7f7f7f"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '>')
      out += "&gt;";
    else
      out += static_cast<unsigned char>(c) < 32 ? '?' : c;
  }
  return out;
}

class Axes {
 public:
  explicit Axes(const std::vector<Line>& lines) {
    double least = 1;
    for (const Line& line : lines) {
      most_ = std::max(most_, line.values.size());
      for (const Interval& value : line.values) least = std::min(least, value.mean);
    }
    bottom_ = std::clamp(std::floor(least * 20) / 20, 0.0, 0.95);
  }

  double x(std::size_t attempts) const {
    const double whole = std::log2(static_cast<double>(std::max<std::size_t>(most_, 2)));
    return kLeft + (kWidth - kLeft - kRight) * std::log2(static_cast<double>(attempts)) / whole;
  }
  double y(double value) const {
    const double part = (std::clamp(value, bottom_, 1.0) - bottom_) / (1 - bottom_);
    return kHeight - kBottom - (kHeight - kTop - kBottom) * part;
  }

  std::string draw(const std::string& y_label) const {
    std::string out;
    for (std::size_t n = 1; n <= most_; n *= 2)
      out += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#ddd'/>\n"
          "<text x='{0:.1f}' y='{3}' text-anchor='middle'>{4}</text>\n",
          x(n), kTop, kHeight - kBottom, kHeight - kBottom + 18, n);
    for (int i = 0; i <= 5; ++i) {
      const double value = bottom_ + (1 - bottom_) * i / 5;
      out += fmt::format(
          "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#ddd'/>\n"
          "<text x='{3}' y='{4:.1f}' text-anchor='end'>{5:.2f}</text>\n",
          kLeft, kWidth - kRight, y(value), kLeft - 8, y(value) + 4, value);
    }
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>attempts</text>\n",
                       (kLeft + kWidth - kRight) / 2, kHeight - 18);
    out += fmt::format(
        "<text x='18' y='{0:.1f}' text-anchor='middle' transform='rotate(-90 18 "
        "{0:.1f})'>{1}</text>\n",
        (kTop + kHeight - kBottom) / 2, escaped(y_label));
    return out;
  }

 private:
  std::size_t most_ = 1;
  double bottom_ = 0;
};

}  // namespace

std::string plot(const std::string& title, const std::string& y_label,
                 const std::vector<Line>& lines) {
  const Axes axes(lines);
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
      "<text x='{2}' y='28' font-size='15'>{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
  out += axes.draw(y_label);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::vector<Interval>& values = lines[i].values;
    const char* colour = kColours[i % kColours.size()];
    std::string band, curve;
    for (std::size_t n = 1; n <= values.size(); ++n)
      band += fmt::format("{:.1f},{:.1f} ", axes.x(n), axes.y(values[n - 1].high));
    for (std::size_t n = values.size(); n > 0; --n)
      band += fmt::format("{:.1f},{:.1f} ", axes.x(n), axes.y(values[n - 1].low));
    for (std::size_t n = 1; n <= values.size(); ++n)
      curve += fmt::format("{:.1f},{:.1f} ", axes.x(n), axes.y(values[n - 1].mean));
    const char* dashes = i < kColours.size() ? "" : " stroke-dasharray='6 4'";
    const double at = kTop + 20 * static_cast<double>(i);
    out += fmt::format(
        "<polygon points='{0}' fill='{1}' fill-opacity='0.12'/>\n"
        "<polyline points='{2}' fill='none' stroke='{1}' stroke-width='2'{3}/>\n"
        "<line x1='{4}' x2='{5}' y1='{6:.1f}' y2='{6:.1f}' stroke='{1}' stroke-width='2'{3}/>\n"
        "<text x='{7}' y='{8:.1f}'>{9}</text>\n",
        band, colour, curve, dashes, kWidth - kRight + 15, kWidth - kRight + 40, at,
        kWidth - kRight + 46, at + 4, escaped(lines[i].name));
  }
  return out + "</svg>\n";
}

}  // namespace ac::study
