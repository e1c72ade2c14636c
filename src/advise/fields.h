// Plans as names and values, as an advisor sees them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/space.h"

namespace ac {

using Fields = std::map<std::string, std::string>;  // {"threads", "256"}, {"ring", "bulk_copy"}

Fields fields_of(const Choice& choice);

// Of one family: the values that each field takes in these candidates.
struct FamilyFields {
  std::string_view family;
  std::size_t candidates = 0;
  std::map<std::string, std::vector<std::string>> values;  // numbers by size, then words
};
std::vector<FamilyFields> legal_values(const std::vector<Candidate>& legal);

}  // namespace ac
