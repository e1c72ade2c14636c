#include "generate/each_row.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"

namespace ac {
namespace {

constexpr std::size_t kMostParams = 4096;

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

// Its entry by another name, with the parameters of many rows.
KernelSource of_rows(const KernelSource& one, int rows) {
  KernelSource many{fmt::format("{}_rows{}", one.entry, rows), one.text};
  replace_all(many.text, one.entry, many.entry);
  std::size_t behind = 0;  // the includes
  while (many.text.compare(behind, 8, "#include") == 0) behind = many.text.find('\n', behind) + 1;
  many.text.insert(behind, fmt::format("#include \"kernels/each_row.cuh\"\n"
                                       "#pragma push_macro(\"AC_KERNEL_ENTRY\")\n"
                                       "#undef AC_KERNEL_ENTRY\n"
                                       "#define AC_KERNEL_ENTRY AC_ENTRY_OF_ROWS\n"
                                       "#pragma push_macro(\"AC_OF_ROWS\")\n"
                                       "#undef AC_OF_ROWS\n"
                                       "#define AC_OF_ROWS true\n"
                                       "#define AC_ROWS {}\n",
                                       rows));
  many.text +=
      "#undef AC_ROWS\n"
      "#pragma pop_macro(\"AC_OF_ROWS\")\n"
      "#pragma pop_macro(\"AC_KERNEL_ENTRY\")\n";
  return many;
}

bool can_have_rows(const Launch& launch, int rows) {
  return !launch.product && launch.maps.empty() && launch.grid[2] == Count(1) &&
         launch.params.size() * static_cast<std::size_t>(rows) <= kMostParams;
}

}  // namespace

std::optional<Generated> for_rows(const Generated& one, int rows) {
  Generated many = one;
  std::map<std::string, std::string> names;
  for (KernelSource& source : many.sources) {
    const std::string entry = source.entry;
    source = of_rows(source, rows);
    names[entry] = source.entry;
  }
  for (Launch& launch : many.launches) {
    if (!can_have_rows(launch, rows)) return std::nullopt;
    launch.kernel = names.at(launch.kernel);
    launch.each_row = true, launch.rows = rows;
  }
  return many;
}

}  // namespace ac
