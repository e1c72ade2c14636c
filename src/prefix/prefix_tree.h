// What was kept of prompts, by their tokens: a radix tree. Each edge is one piece, a fixed number
// of tokens, so that what prompts begin with alike is kept once, and no edge is ever split.
//
// What was not used for longest goes first, when there is no room for more. Whatever uses a piece
// uses those before it, and later: the one that was not used for longest has none after it.
#pragma once

#include <algorithm>
#include <cstdint>
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

  // What is kept of the last of these whole pieces; null: nothing.
  const Value* find(Tokens pieces) const {
    const Node* const node = const_cast<PrefixTree*>(this)->at(pieces);
    return node != nullptr && node != &root_ ? &node->value : nullptr;
  }

  // What is kept of each of the first pieces, as far as they are there.
  std::vector<const Value*> path(Tokens tokens) const {
    std::vector<const Value*> values;
    const Node* node = &root_;
    for (; tokens.size() >= piece_; tokens = tokens.subspan(piece_)) {
      const auto child = node->children.find(tokens.first(piece_));
      if (child == node->children.end()) break;
      values.push_back(&(node = &child->second)->value);
    }
    return values;
  }

  // Uses the pieces that the tokens begin with, as far as they are there.
  void use(Tokens tokens) {
    std::vector<Node*> path;
    Node* node = &root_;
    for (Tokens rest = tokens; rest.size() >= piece_; rest = rest.subspan(piece_)) {
      const auto child = node->children.find(rest.first(piece_));
      if (child == node->children.end()) break;
      path.push_back(node = &child->second);
    }
    for (; !path.empty(); path.pop_back()) order_.splice(order_.begin(), order_, path.back()->used);
  }

  // Keeps what `make` gives of the last piece, of so many bytes; uses them all. False, and `make`
  // is not called: those before it are not there, or there is no room beside them.
  template <class Make>
  bool add(Tokens pieces, std::size_t bytes, const Make& make) {
    AC_ASSERT(!pieces.empty() && pieces.size() % piece_ == 0);
    use(pieces);
    const Tokens last = pieces.last(piece_);
    Node* const parent = at(pieces.first(pieces.size() - piece_));
    if (parent == nullptr) return false;
    if (parent->children.find(last) != parent->children.end()) return true;
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
    bool operator()(const auto& a, const auto& b) const {
      return std::ranges::lexicographical_compare(a, b);
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

  Node* at(Tokens pieces) {
    Node* node = &root_;
    for (; !pieces.empty(); pieces = pieces.subspan(piece_)) {
      const auto child = node->children.find(pieces.first(piece_));
      if (child == node->children.end()) return nullptr;
      node = &child->second;
    }
    return node;
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
