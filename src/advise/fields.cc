#include "advise/fields.h"

#include <algorithm>

namespace ac {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return c >= '0' && c <= '9'; });
}

// All that occur, in the order in which people would list them.
bool before(const std::string& a, const std::string& b) {
  if (is_number(a) != is_number(b)) return is_number(a);
  if (is_number(a) && a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

}  // namespace

Fields fields_of(const Choice& choice) {
  Fields fields;
  for (PlanField& field : plan_fields(choice)) fields[field.name] = std::move(field.value);
  return fields;
}

std::vector<FamilyFields> legal_values(const std::vector<Candidate>& legal) {
  std::vector<FamilyFields> families;
  for (const Candidate& candidate : legal) {
    const std::string_view family = family_of(candidate.choice);
    auto known = std::find_if(families.begin(), families.end(),
                              [&](const FamilyFields& f) { return f.family == family; });
    if (known == families.end()) known = families.insert(known, {family, 0, {}});
    ++known->candidates;
    for (const auto& [field, value] : fields_of(candidate.choice)) {
      std::vector<std::string>& values = known->values[field];
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
  }
  for (FamilyFields& family : families)
    for (auto& [field, values] : family.values) std::sort(values.begin(), values.end(), before);
  return families;
}

}  // namespace ac
