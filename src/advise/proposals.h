// An advisor inside a search: asked at a point what to change, with all that was tried so far. Its
// reply is data from outside, as all advice is: each proposal is looked up among the point's
// neighbours, and ends accepted or rejected with a reason. What it says of causes is kept as a
// note.
#pragma once

#include <string>
#include <vector>

#include "advise/advice.h"
#include "advise/provider.h"
#include "search/proposals.h"

namespace ac {

// What an advisor would have people add to the space, in its words: kept and shown, never run.
struct FieldRequest {
  std::string site, field, value, why;
  bool is_known = false;  // the space has such a value
};

// One call.
struct ProposalCall {
  int from = 0;  // the point that it was asked about
  Prompt prompt;
  Reply reply;
  std::vector<AuditItem> audit;  // of its proposals
  std::string note;              // what it says of causes
  bool takes_requests = false;   // else those of the reply are not read
  std::vector<FieldRequest> requests;
};

class AdvisedProposer : public search::Proposer {
 public:
  // `about`: what is searched, in a line: "the decode step of Qwen3-1.7B on an H100". `name`: of
  // files with questions. `attempts`: of the whole search. `takes_requests`: the questions say that
  // people can be asked for values that the space lacks.
  AdvisedProposer(Provider& provider, std::string about, std::string name, std::size_t attempts,
                  bool takes_requests = false)
      : provider_(provider),
        about_(std::move(about)),
        name_(std::move(name)),
        attempts_(attempts),
        takes_requests_(takes_requests) {}

  std::vector<int> propose(const search::Situation& situation) override;

  const std::vector<ProposalCall>& calls() const { return calls_; }

 private:
  Provider& provider_;
  const std::string about_, name_;
  const std::size_t attempts_;
  const bool takes_requests_;
  std::vector<ProposalCall> calls_;
};

// However long the history is, a prompt has at most so many bytes.
inline constexpr std::size_t kMaxProposalPrompt = 24'000;

Prompt proposal_prompt(const search::Situation& situation, const std::string& about,
                       const std::string& name, std::size_t attempts, bool takes_requests = false);
// The points that the reply's proposals lead to, best first.
std::vector<int> read_proposals(std::string_view reply, const search::Situation& situation,
                                ProposalCall& call);
Json to_json(const ProposalCall& call);

}  // namespace ac
