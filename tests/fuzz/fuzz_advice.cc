// Any bytes as an advisor's reply. Whatever they are, only plans of the enumerated space
// come out, each once, and the audit can be written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

#include "advise/advice.h"
#include "advise/limits.h"
#include "base/error.h"

namespace {

ac::Question make_question() {
  constexpr std::size_t kAll = 100'000;
  const ac::DeviceInfo& device = ac::device_info("sm_90");
  ac::Question question;
  question.device = device;
  question.space = ac::plan_sampling(ac::DType::f32, 32000, device, 16);
  question.legal = ac::plan_sampling(ac::DType::f32, 32000, device, kAll).candidates;
  question.fusions = {{"a+b", 1.0, true}, {"a | b", 2.0}, {"a", {}}};
  return question;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ac::Question question = make_question();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ac::Advice advice = ac::parse_advice(text, question);
  AC_ASSERT(advice.order.size() <= ac::kMaxOrder + ac::kMaxHints);
  std::set<std::string> seen;
  for (const ac::Candidate& candidate : advice.order) {
    AC_ASSERT(seen.insert(candidate.id).second);
    AC_ASSERT(question.find(candidate.id) != nullptr);
  }
  for (const std::string& id : advice.thorough) AC_ASSERT(question.find(id) != nullptr);
  AC_ASSERT(advice.preferred < static_cast<int>(question.fusions.size()));
  AC_ASSERT(advice.avoided.count(advice.preferred) == 0);
  for (const ac::AuditItem& item : advice.audit)
    AC_ASSERT(item.said.size() + item.reason.size() < 1000);
  ac::to_json(advice.audit).dump();
  return 0;
}
