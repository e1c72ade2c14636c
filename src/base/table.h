// Aligned columns for people: numbers to the right, words to the left. A column in which no row has
// anything is left out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ac {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // As many cells as the header has. Control characters in them are shown as "?".
  void add(std::vector<std::string> row);
  std::string text() const;
  std::size_t rows() const { return rows_.size() - 1; }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ac
