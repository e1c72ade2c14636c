#include "text/trie.h"

#include <algorithm>
#include <cstddef>

namespace ac::text {

Trie::Trie(std::vector<std::pair<std::string_view, std::int32_t>> texts) {
  if (texts.empty()) return;
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.emplace_back();
  // The texts that go through a node are neighbours. In order of depth, so that brothers are as
  // well.
  struct Range {
    std::uint32_t node;
    std::size_t begin, end, depth;
  };
  std::vector<Range> level{{0, 0, texts.size(), 0}}, next;
  while (!level.empty()) {
    next.clear();
    for (const Range& range : level) {
      std::size_t at = range.begin;
      while (at < range.end && texts[at].first.size() == range.depth)
        nodes_[range.node].value = texts[at++].second;
      nodes_[range.node].children = static_cast<std::uint32_t>(nodes_.size());
      while (at < range.end) {
        const char label = texts[at].first[range.depth];
        std::size_t last = at;
        while (last < range.end && texts[last].first[range.depth] == label) ++last;
        next.push_back({static_cast<std::uint32_t>(nodes_.size()), at, last, range.depth + 1});
        if (range.node == 0)
          roots_[static_cast<unsigned char>(label)] = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({.label = static_cast<std::uint8_t>(label)});
        ++nodes_[range.node].count;
        at = last;
      }
    }
    std::swap(level, next);
  }
}

}  // namespace ac::text
