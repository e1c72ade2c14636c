#include "generate/each_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
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
  return !launch.product && launch.maps.empty() && !launch.at_once && launch.grid[2] == Count(1) &&
         launch.params.size() * static_cast<std::size_t>(rows) <= kMostParams;
}

}  // namespace

std::optional<Generated> for_rows(const Generated& one, int rows,
                                  const std::vector<std::size_t>& launches) {
  Generated many = one;
  std::set<std::string> taken;
  for (const std::size_t i : launches) {
    Launch& launch = many.launches.at(i);
    if (!can_have_rows(launch, rows)) return std::nullopt;
    const auto source = std::ranges::find(one.sources, launch.kernel, &KernelSource::entry);
    AC_ASSERT(source != one.sources.end());
    const KernelSource of_many = of_rows(*source, rows);
    launch.kernel = of_many.entry, launch.each_row = true, launch.rows = rows;
    if (taken.insert(source->entry).second) many.sources.push_back(of_many);
  }
  std::erase_if(many.sources, [&](const KernelSource& source) {
    return taken.contains(source.entry) &&
           std::ranges::find(many.launches, source.entry, &Launch::kernel) == many.launches.end();
  });
  return many;
}

std::optional<Generated> for_rows(const Generated& one, int rows) {
  std::vector<std::size_t> launches(one.launches.size());
  std::iota(launches.begin(), launches.end(), std::size_t{0});
  return for_rows(one, rows, launches);
}

}  // namespace ac
