// Any bytes as an advisor's reply, before a search or during it. Whatever they are, only plans of
// the enumerated space come out, each once, and what is kept of them is short and can be written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

#include "advise/advice.h"
#include "advise/limits.h"
#include "advise/proposals.h"
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

ac::search::ListedSpace make_space() {
  std::vector<ac::search::Point> points;
  for (const std::int64_t threads : {64, 128, 256})
    for (const char* ring : {"none", "bulk_copy"})
      points.push_back({std::to_string(threads) + ring,
                        {{"", "gemv", {{"threads", threads}, {"ring", std::string(ring)}}}},
                        1});
  return ac::search::ListedSpace(std::move(points));
}

void read_proposals_and_requests(std::string_view text) {
  static const ac::search::ListedSpace space = make_space();
  const std::vector<ac::search::Visit> visits{{0, -1, {ac::search::Verdict::measured, 1}},
                                              {1, 0, {ac::search::Verdict::wrong, 0, "why"}}};
  ac::ProposalCall call;
  call.takes_requests = true;
  const std::vector<int> points = ac::read_proposals(text, {space, visits, 0, 3}, call);
  AC_ASSERT(points.size() <= 3);
  std::set<int> seen{0, 1};
  for (const int point : points) {
    AC_ASSERT(seen.insert(point).second);
    AC_ASSERT(std::ranges::count(space.neighbours(0), point) == 1);
  }
  AC_ASSERT(call.requests.size() <= ac::kMaxRequests);
  for (const ac::FieldRequest& request : call.requests)
    for (const std::string& of : {request.site, request.field, request.value, request.why})
      AC_ASSERT(of.size() < ac::kMaxNoteBytes + 4);
  for (const ac::AuditItem& item : call.audit)
    AC_ASSERT(item.said.size() + item.reason.size() < 1000);
  ac::to_json(call).dump();
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
  read_proposals_and_requests(text);
  return 0;
}
