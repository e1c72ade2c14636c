// Which of many texts another one begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ac::text {

class Trie {
 public:
  Trie() = default;
  // The texts must outlive this call only. Of equal ones, the last value counts.
  explicit Trie(std::vector<std::pair<std::string_view, std::int32_t>> texts);

  // Calls visit(bytes, value) for each text that `text` begins with, shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    if (nodes_.empty()) return;
    const Node* node = nodes_.data();
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(*node, static_cast<unsigned char>(text[i]));
      if (!node) return;
      if (node->value >= 0) visit(i + 1, node->value);
    }
  }
  bool may_begin(char first) const { return roots_[static_cast<unsigned char>(first)] != 0; }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    std::uint32_t children = 0;  // the first of them; they stand side by side, by label
    std::uint16_t count = 0;
    std::uint8_t label = 0;
    std::int32_t value = -1;
  };
  const Node* child(const Node& node, unsigned char label) const {
    if (&node == nodes_.data()) return roots_[label] ? &nodes_[roots_[label]] : nullptr;
    const Node* first = nodes_.data() + node.children;  // behind all, of a node without any
    std::uint32_t count = node.count;
    while (count > 8) {  // by halves, then one by one
      const std::uint32_t half = count / 2;
      if (first[half].label <= label) {
        first += half;
        count -= half;
      } else {
        count = half;
      }
    }
    for (; count > 0 && first->label <= label; ++first, --count)
      if (first->label == label) return first;
    return nullptr;
  }

  std::vector<Node> nodes_;        // the root first; empty where there are no texts
  std::uint32_t roots_[256] = {};  // the root's children
};

}  // namespace ac::text
