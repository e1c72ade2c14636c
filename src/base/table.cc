#include "base/table.h"

#include <algorithm>

#include "base/error.h"

namespace ac {
namespace {

bool is_number(const std::string& cell) {
  return cell.empty() || (cell[0] >= '0' && cell[0] <= '9') || cell[0] == '-';
}

// In characters, not bytes: a signature may be in any script.
std::size_t width(const std::string& cell) {
  return static_cast<std::size_t>(std::count_if(cell.begin(), cell.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  AC_ASSERT(row.size() == rows_[0].size());
  for (std::string& cell : row)
    for (char& c : cell)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  const std::size_t columns = rows_[0].size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> numbers(columns, true), used(columns, rows() == 0);
  for (std::size_t i = 0; i < rows_.size(); ++i)
    for (std::size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], width(rows_[i][c]));
      if (i > 0 && !rows_[i][c].empty()) used[c] = true;
      if (i > 0 && !is_number(rows_[i][c])) numbers[c] = false;
    }
  const auto first =
      static_cast<std::size_t>(std::find(used.begin(), used.end(), true) - used.begin());
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      if (!used[c]) continue;
      const std::string space(widths[c] - width(row[c]), ' ');
      line += (c == first ? "" : "  ") + (numbers[c] ? space + row[c] : row[c] + space);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace ac
