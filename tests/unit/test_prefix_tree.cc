// The tree of pieces, held against a list of all that was added.
#include "prefix/prefix_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace ac::test {
namespace {

constexpr std::int64_t kPiece = 3;
constexpr std::size_t kTokenBytes = kPiece * sizeof(std::int64_t);  // of a piece

using Ids = std::vector<std::int64_t>;
using Tree = PrefixTree<int>;

bool add(Tree& tree, const Ids& ids, std::size_t bytes, int value) {
  return tree.add(ids, bytes - kTokenBytes, [&] { return value; });
}

// What is kept of the last of these pieces; null: nothing.
const int* find(const Tree& tree, const Ids& pieces) {
  const auto path = tree.path(pieces);
  return !path.empty() && path.size() * kPiece == pieces.size() ? path.back() : nullptr;
}

// Says the same, slowly: every piece by all tokens up to its end, and when it was used last.
struct Naive {
  struct Piece {
    Ids ids;
    std::size_t bytes;
    int value, used;
  };
  std::size_t room;
  std::vector<Piece> pieces = {};
  int clock = 0, evictions = 0;

  Piece* at(const Ids& ids) {
    const auto found = std::ranges::find(pieces, ids, &Piece::ids);
    return found == pieces.end() ? nullptr : &*found;
  }
  std::size_t bytes() const {
    std::size_t all = 0;
    for (const Piece& piece : pieces) all += piece.bytes;
    return all;
  }
  static bool begins(const Ids& ids, const Ids& with) {
    return ids.size() >= with.size() && std::equal(with.begin(), with.end(), ids.begin());
  }
  void use(const Ids& ids) {
    // The longest first, so that those before it are used later.
    std::vector<Piece*> path;
    for (Piece& piece : pieces)
      if (begins(ids, piece.ids)) path.push_back(&piece);
    std::ranges::sort(path, [](auto* a, auto* b) { return a->ids.size() > b->ids.size(); });
    for (Piece* piece : path) piece->used = ++clock;
  }
  bool add(const Ids& ids, std::size_t bytes_of, int value) {
    use(ids);
    const Ids before(ids.begin(), ids.end() - kPiece);
    if (at(ids)) return true;
    if (!before.empty() && !at(before)) return false;
    while (bytes() + bytes_of > room) {
      const auto oldest = std::ranges::min_element(pieces, {}, &Piece::used);
      if (oldest == pieces.end() || oldest->ids == before) return false;
      for (const Piece& piece : pieces)  // never one before another
        CHECK((piece.ids == oldest->ids || !begins(piece.ids, oldest->ids)));
      pieces.erase(oldest);
      ++evictions;
    }
    pieces.push_back({ids, bytes_of, value, ++clock});
    use(ids);
    return true;
  }
};

}  // namespace

TEST_CASE("prefix tree: what prompts begin with alike is there once") {
  Tree tree(kPiece, 1000);
  CHECK(find(tree, Ids{}) == nullptr);
  CHECK(add(tree, {1, 2, 3}, 100, 1));
  CHECK_FALSE(add(tree, {9, 9, 9, 4, 5, 6}, 100, 9));  // nothing is there that it could follow
  CHECK(add(tree, {1, 2, 3, 4, 5, 6}, 100, 2));
  CHECK(add(tree, {1, 2, 3, 4, 5, 7}, 100, 3));
  CHECK(tree.bytes() == 300);
  CHECK(add(tree, {1, 2, 3}, 100, 7));  // it stays as it was
  CHECK(tree.bytes() == 300);
  CHECK(*find(tree, Ids{1, 2, 3}) == 1);
  CHECK(*find(tree, Ids{1, 2, 3, 4, 5, 6}) == 2);
  CHECK(*find(tree, Ids{1, 2, 3, 4, 5, 7}) == 3);
  CHECK(find(tree, Ids{1, 2, 4}) == nullptr);
  CHECK(find(tree, Ids{4, 5, 6}) == nullptr);
  CHECK(find(tree, Ids{1, 2, 3, 4, 5, 6, 7, 8, 9}) == nullptr);
}

TEST_CASE("prefix tree: what was not used for longest goes first, and never what others follow") {
  Tree tree(kPiece, 300);
  CHECK(add(tree, {1, 1, 1}, 100, 1));
  CHECK(add(tree, {1, 1, 1, 2, 2, 2}, 100, 2));
  CHECK(add(tree, {3, 3, 3}, 100, 3));
  tree.use(Ids{1, 1, 1, 2, 2, 2, 5});  // now {3, 3, 3} is the oldest
  CHECK(add(tree, {4, 4, 4}, 100, 4));
  CHECK(find(tree, Ids{3, 3, 3}) == nullptr);
  CHECK(add(tree, {5, 5, 5}, 100, 5));
  CHECK(find(tree, Ids{1, 1, 1, 2, 2, 2}) == nullptr);
  CHECK(find(tree, Ids{1, 1, 1}) != nullptr);
  CHECK(tree.evictions() == 2);
  CHECK_FALSE(add(tree, {6, 6, 6}, 301, 6));
  CHECK(tree.bytes() == 0);
  // A prompt that is longer than there is room for keeps its beginning.
  CHECK(add(tree, {1, 1, 1}, 150, 1));
  CHECK(add(tree, {1, 1, 1, 1, 1, 1}, 150, 1));
  CHECK_FALSE(add(tree, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 150, 1));
  CHECK(tree.bytes() == 300);
  Tree none(kPiece, 0);
  CHECK_FALSE(add(none, {1, 1, 1}, 100, 1));
}

TEST_CASE(
    "prefix tree: nothing is made where there is no room, and what cannot be made is not there") {
  Tree tree(kPiece, 100);
  bool made = false;
  CHECK_FALSE(tree.add(Ids{1, 2, 3}, 100, [&] { return made = true; }));  // tokens have bytes, too
  CHECK_FALSE(made);
  CHECK_THROWS(tree.add(Ids{1, 2, 3}, 50, []() -> int { throw std::bad_alloc(); }));
  CHECK(tree.bytes() == 0);
  CHECK(find(tree, Ids{1, 2, 3}) == nullptr);
  CHECK(add(tree, {1, 2, 3}, 100, 1));
}

TEST_CASE("prefix tree: random prompts, as a list of all pieces has it") {
  std::mt19937 random(1);
  for (const std::size_t room : {100, 400, 2000}) {
    Tree tree(kPiece, room);
    Naive naive{room};
    for (int round = 0; round < 4000; ++round) {
      Ids ids;
      for (auto more = kPiece * (1 + random() % 5); more > 0; --more)
        ids.push_back(ids.size() % kPiece == 2 ? random() % 2 : 0);
      switch (random() % 4) {
        case 0:
          CHECK(tree.path(ids) == tree.use(ids));
          naive.use(ids);
          break;
        default:  // as a prompt comes: from its first piece on
          for (auto end = kPiece; end <= std::ssize(ids); end += kPiece) {
            const Ids pieces(ids.begin(), ids.begin() + end);
            const std::size_t bytes = kTokenBytes + random() % 80;
            REQUIRE(add(tree, pieces, bytes, round) == naive.add(pieces, bytes, round));
          }
      }
      REQUIRE(tree.bytes() == naive.bytes());
      REQUIRE(tree.bytes() <= room);
      const int* const found = find(tree, ids);
      REQUIRE((found != nullptr) == (naive.at(ids) != nullptr));
      if (found) REQUIRE(*found == naive.at(ids)->value);
      for (const Naive::Piece& piece : naive.pieces) {
        const int* const value = find(tree, piece.ids);
        REQUIRE(value != nullptr);
        REQUIRE(*value == piece.value);
      }
    }
    CHECK(tree.evictions() == naive.evictions);
    CHECK(tree.evictions() > 100);
  }
}

}  // namespace ac::test
