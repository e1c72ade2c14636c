// Asks an advisor about the regions of a model's decode step what the compiler would ask, so that
// searches over recorded tables can be replayed with its advice. Nothing is compiled or measured.
#pragma once

#include <map>

#include "advise/advisor.h"
#include "study/advice_file.h"

namespace ac::study {

struct AdviseOptions {
  DeviceInfo device;
  std::int64_t max_context = 0;      // 0: as the compiler has it
  std::vector<std::string> regions;  // as tune::WorkshopOptions has them
  bool cover_only = false;           // likewise; the compiler asks about these
};

struct AskedRegion {
  std::string signature, ops;
  Answer answer;
  bool answered() const { return answer.reply.failure.empty(); }
};

// `normal`: the model's normal form. That nothing is to be asked about is an error (wrong_usage).
std::vector<AskedRegion> advise(const Graph& normal, const AdviseOptions& options,
                                Advisor& advisor);

// Who answered and when, where a reply does not say it.
struct Author {
  std::string model, date;
};

// As the files keep them: the order is the accepted one, hints in it right behind what they refine.
// Regions without a reply are left out. A reply whose author nobody knows is an error
// (wrong_usage): none is made up.
std::vector<RecordedReply> recorded(const std::vector<AskedRegion>& regions,
                                    const std::string& advisor, const Author& author);

// What the audits of replies come to: how many items of each key ("order", "hints", ...) were
// accepted and, by reason, rejected. Reasons are told without the ids and values in them.
struct AuditCount {
  std::size_t accepted = 0;
  std::map<std::string, std::size_t> rejected;
};
std::map<std::string, AuditCount> count_audits(const std::vector<AskedRegion>& regions);

}  // namespace ac::study
