// What was kept of prompts, by their tokens: a radix tree. Each edge is one piece, a fixed number
// of tokens, so that what prompts begin with alike is kept once, and no edge is ever split.
//
// What was not used for longest goes first, when there is no room for more. Whatever uses a piece
// uses those before it, and later: the one that was not used for longest has none after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ac {

using Tokens = std::span<const std::int64_t>;

template <class Value>
class PrefixTree {
 public:
  // Room for so many bytes, those of tokens among them.
  PrefixTree(std::int64_t piece, std::size_t room)
      : piece_(static_cast<std::size_t>(piece)), room_(room) {
    AC_ASSERT(piece > 0);
  }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  std::size_t room() const { return room_; }
  std::size_t bytes() const { return bytes_; }
  std::int64_t evictions() const { return evictions_; }

  // What is kept of each of the first pieces, as far as they are there.
  std::vector<const Value*> path(Tokens tokens) const {
    return values_of(const_cast<PrefixTree*>(this)->nodes(tokens));
  }

  // The same, and uses them.
  std::vector<const Value*> use(Tokens tokens) { return values_of(used(tokens)); }

  // Keeps what `make` gives of the last piece, of so many bytes; uses them all. False, and `make`
  // is not called: those before it are not there, or there is no room beside them.
  template <class Make>
  bool add(Tokens pieces, std::size_t bytes, const Make& make) {
    AC_ASSERT(!pieces.empty() && pieces.size() % piece_ == 0);
    const Tokens last = pieces.last(piece_);
    const std::vector<Node*> before = used(pieces);
    const std::size_t missing = pieces.size() / piece_ - before.size();
    if (missing != 1) return missing == 0;
    Node* const parent = before.empty() ? &root_ : before.back();
    bytes += last.size_bytes();
    while (bytes > room_ - bytes_) {
      if (order_.empty() || order_.back() == parent) return false;
      evict(*order_.back());
    }
    Value value = make();
    const auto child =
        parent->children.try_emplace(std::vector<std::int64_t>(last.begin(), last.end())).first;
    Node& node = child->second;
    node.value = std::move(value), node.bytes = bytes;
    node.parent = parent, node.self = child;
    node.used = order_.insert(parent == &root_ ? order_.begin() : std::next(parent->used), &node);
    bytes_ += bytes;
    return true;
  }

 private:
  struct Less {
    using is_transparent = void;
    // Both are pieces, in any order that is always the same.
    bool operator()(Tokens a, Tokens b) const {
      return std::memcmp(a.data(), b.data(), a.size_bytes()) < 0;
    }
  };
  struct Node {
    using Children = std::map<std::vector<std::int64_t>, Node, Less>;
    Value value = {};
    std::size_t bytes = 0;
    Node* parent = nullptr;
    Children children = {};
    Children::iterator self = {};
    std::list<Node*>::iterator used = {};
  };

  std::vector<Node*> nodes(Tokens tokens) {
    std::vector<Node*> nodes;
    for (Node* node = &root_; tokens.size() >= piece_; tokens = tokens.subspan(piece_)) {
      const auto child = node->children.find(tokens.first(piece_));
      if (child == node->children.end()) break;
      nodes.push_back(node = &child->second);
    }
    return nodes;
  }

  std::vector<Node*> used(Tokens tokens) {
    std::vector<Node*> path = nodes(tokens);
    for (auto node = path.rbegin(); node != path.rend(); ++node)
      order_.splice(order_.begin(), order_, (*node)->used);
    return path;
  }

  static std::vector<const Value*> values_of(const std::vector<Node*>& nodes) {
    std::vector<const Value*> values;
    for (const Node* const node : nodes) values.push_back(&node->value);
    return values;
  }

  void evict(Node& node) {
    AC_ASSERT(node.children.empty());
    order_.erase(node.used);
    bytes_ -= node.bytes;
    ++evictions_;
    node.parent->children.erase(node.self);
  }

  const std::size_t piece_, room_;
  Node root_;
  std::list<Node*> order_;  // the last used one first
  std::size_t bytes_ = 0;
  std::int64_t evictions_ = 0;
};

}  // namespace ac
