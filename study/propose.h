// Searches over a recorded table in which somebody proposes changes between attempts, and the
// falsifiers of that. What a search did is kept, as its replies cost money: `replay` compares it
// with other arms.
#pragma once

#include "advise/proposals.h"
#include "study/answers.h"

namespace ac::study {

// What a proposer hears of the attempts: what they were and what came of them, with the outcomes
// permuted, nothing, or the history of a search over another table instead.
enum class Feedback : std::uint8_t { true_, permuted, none, other };
std::string_view to_string(Feedback feedback);

struct ProposeOptions {
  std::string strategy = "tree";  // beside the proposals
  std::size_t attempts = 64;
  search::ProposalOptions proposals;
  Feedback feedback = Feedback::true_;
  std::uint64_t seed = 1;  // of the strategies, of permutations, and of proposals by chance
  std::string model = {}, date = {};  // of replies that do not say theirs
  bool takes_requests = false;        // for values that the space lacks; questions say so
};

struct ProposedSession {
  std::string arm;                 // "proposals+tree (permuted feedback)"
  std::string signature;           // of the table
  std::vector<std::string> plans;  // that were tried, in order
  Json calls = Json::array();      // costs_of() reads what they cost
  std::size_t attempts = 0;        // that it was allowed; 0: not recorded
  double best = 0;                 // microseconds; 0: nothing was measured. Not kept in files
  bool takes_requests = false;
};

// What advisors would have people add to a space. Nothing of it was run.
struct RequestedValue {
  FieldRequest request;  // the first of equal ones
  std::size_t times = 1;
};
// Adds the requests of a search's calls, equal ones once. Calls that are not as ac::to_json()
// writes them are a Json::exception.
void add_requests(const Json& calls, std::vector<RequestedValue>& requests);

// `provider`: null for proposals by chance. `name`: of files with questions. `other`: for
// Feedback::other, of another table.
ProposedSession propose(const TimedTable& table, const Answers& answers, const std::string& about,
                        Provider* provider, const std::string& name, const ProposeOptions& options,
                        const Answers* other = nullptr);

// Of other tables, the one whose sites and fields have most names in common with this one's, the
// first of several; none with any is an error (bad_input).
const TimedTable& most_alike(const TimedTable& table, const std::vector<Recording>& others);

Json to_json(const ProposedSession& session);
// JSON lines. What is no such line is an error (bad_input).
std::vector<ProposedSession> read_sessions(const std::filesystem::path& file);

}  // namespace ac::study
