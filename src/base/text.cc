#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace ac {
namespace {

constexpr std::size_t kLongestShown = 200;

// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string quote(std::string_view text) {
  std::string shown = "\"";
  for (const char c : text.substr(0, kLongestShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      shown += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown + (text.size() > kLongestShown ? "\"..." : "\"");
}

std::vector<std::string> close_matches(std::string_view wanted,
                                       const std::vector<std::string>& candidates,
                                       std::size_t limit) {
  if (wanted.size() > kLongestShown) return {};
  const std::size_t furthest = std::max<std::size_t>(2, wanted.size() / 3);
  std::vector<std::pair<std::size_t, const std::string*>> ranked;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > wanted.size() + furthest || wanted.size() > candidate.size() + furthest)
      continue;
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance <= furthest) ranked.emplace_back(distance, &candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (std::size_t i = 0; i < std::min(limit, ranked.size()); ++i)
    best.push_back(*ranked[i].second);
  return best;
}

}  // namespace ac
