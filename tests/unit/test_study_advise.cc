// Advice for studies: what is asked, what is kept of a reply, and that it is kept once.
#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "capture/config.h"
#include "capture/native.h"
#include "expect_error.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/positions.h"
#include "select/guide.h"
#include "study/advise.h"
#include "tests/tools/source_folder.h"

using namespace ac;
using namespace ac::study;

namespace {

// Answers each prompt as it is told, and remembers what it was asked.
class Told : public Provider {
 public:
  using Answering = std::function<Reply(const Prompt&)>;
  Told(Answering answering, std::vector<Prompt>& asked)
      : answering_(std::move(answering)), asked_(asked) {}
  std::vector<Reply> answer(const std::vector<Prompt>& prompts) override {
    std::vector<Reply> replies;
    for (const Prompt& prompt : prompts) {
      asked_.push_back(prompt);
      replies.push_back(answering_(prompt));
    }
    return replies;
  }

 private:
  const Answering answering_;
  std::vector<Prompt>& asked_;
};

const Graph& qwen3() {
  static const Graph graph =
      normalise(build_decoder(read_config(test_data() / "configs/qwen3-1.7b.json"), "qwen3-1.7b"));
  return graph;
}

AdviseOptions options() {
  AdviseOptions options;
  options.device = device_info("sm_90");
  options.cover_only = true;
  return options;
}

std::vector<AskedRegion> ask_qwen3(const Told::Answering& answering, const AdviseOptions& options,
                                   double share = 0.05) {
  std::vector<Prompt> asked;
  Advisor advisor(std::make_unique<Told>(answering, asked), "told", share);
  return advise(qwen3(), options, advisor);
}

Reply nothing(const Prompt&) { return {.text = "{\"order\": []}"}; }

const AskedRegion& pair(const std::vector<AskedRegion>& regions) {
  for (const AskedRegion& region : regions)
    if (region.ops == "rms_norm+linear+silu+linear+mul") return region;
  FAIL("no pair of products");
  return regions.at(0);
}

RecordedReply reply(const std::string& text) {
  return {"S", {{"a"}, {}, "m", "2026-01-02", 0, 0}, "ask:x", "hash", "prompt", text};
}

}  // namespace

TEST_CASE("study advise: the questions are those that the compiler asks") {
  PhasePlan phase;
  phase.spec.name = "decode";
  const StepGraph step = incrementalise(qwen3());
  phase.regions = analyse(decode_instance(step));
  phase.plans = plan(phase.regions, device_info("sm_90"), {.at = priced_at(1, 4096)});
  for (const double share : {0.01, 0.05, 2.0}) {
    std::vector<Prompt> compiler, study;
    Advisor one(std::make_unique<Told>(nothing, compiler), "told", share);
    Advisor other(std::make_unique<Told>(nothing, study), "told", share);
    Guide guide(phase, one);
    Progress quiet(true);
    ask(one, {&guide}, quiet);
    advise(qwen3(), options(), other);
    REQUIRE(study.size() == compiler.size());
    for (std::size_t i = 0; i < study.size(); ++i) {
      CHECK(study[i].text == compiler[i].text);
      CHECK(study[i].name == compiler[i].name);
      CHECK(study[i].hash == compiler[i].hash);
    }
    if (share != 0.05) continue;  // all cuts take seconds
    // Of all cuts: these and others.
    AdviseOptions all = options();
    all.cover_only = false;
    std::set<std::string> hashes;
    for (const AskedRegion& region : ask_qwen3(nothing, all, share))
      hashes.insert(region.answer.prompt.hash);
    CHECK(hashes.size() > compiler.size());
    for (const Prompt& prompt : compiler) CHECK(hashes.count(prompt.hash) == 1);
  }
}

TEST_CASE("study advise: only the regions that are wanted, and one of them at least") {
  AdviseOptions some = options();
  some.regions = {"argmax", "append_attend"};
  const std::vector<AskedRegion> regions = ask_qwen3(nothing, some);
  REQUIRE(regions.size() == 2);
  for (const AskedRegion& region : regions)
    CHECK((region.ops.find("argmax") != std::string::npos ||
           region.ops.find("append_attend") != std::string::npos));
  some.regions = {pair(ask_qwen3(nothing, options())).signature};
  CHECK(ask_qwen3(nothing, some).size() == 1);
  some.regions = {"no such region"};
  CHECK(ac::test::error_of(Fault::wrong_usage, [&] {
          ask_qwen3(nothing, some);
        }).find("--regions") != std::string::npos);
}

TEST_CASE("study advise: an order holds what was accepted, hints behind what they refine") {
  // Two candidates of the region as its prompt lists them.
  std::vector<std::string> ids;
  const auto answer = [&](const Prompt& prompt) {
    Reply reply{.text = "I cannot say.", .model = "a model"};
    if (prompt.name.find("rms_norm+linear+silu+linear+mul") == std::string::npos) return reply;
    ids.clear();
    for (std::size_t at = prompt.text.find("## Candidates"); ids.size() < 3;) {
      at = prompt.text.find("\n  gemv/", at) + 3;
      ids.push_back(prompt.text.substr(at, prompt.text.find(' ', at) - at));
    }
    const std::string cache =
        ids[2].find("/evict") == std::string::npos ? "evict_first" : "streaming";
    reply.text = Json{{"order", {ids[0], "no/such/plan", ids[2], ids[0], ids[1]}},
                      {"hints",
                       {{{"candidate", ids[2]}, {"set", {{{"field", "cache"}, {"value", cache}}}}},
                        {{"candidate", ids[2]}, {"set", {{{"field", "threads"}, {"value", "7"}}}}},
                        {{"candidate", ids[2]}, {"set", {{{"field", "threads"}, {"value", "9"}}}}},
                        {{"candidate", ids[2]}, {"set", Json::array()}}}},
                      {"<script>", 1}}
                     .dump();
    reply.input_tokens = 30, reply.output_tokens = 12, reply.calls = 1, reply.seconds = 2.5;
    return reply;
  };
  const std::vector<AskedRegion> regions = ask_qwen3(answer, options());
  const std::vector<RecordedReply> list = recorded(regions, "told", {"nobody", "2026-11-21"});
  REQUIRE(list.size() == regions.size());
  for (const RecordedReply& each : list) {
    CHECK(each.advice.model == "a model");  // what a reply says of itself counts
    CHECK(each.advice.date == "2026-11-21");
    CHECK(each.advisor == "told");
    CHECK(each.advice.weights.empty());
    if (each.region != pair(regions).signature) {
      CHECK(each.advice.order.empty());  // an answer, if of no use
      CHECK(each.text == "I cannot say.");
      CHECK(each.advice.seconds == 0);
      continue;
    }
    CHECK(each.prompt == pair(regions).answer.prompt.text);
    CHECK(each.advice.tokens == 42);
    CHECK(each.advice.seconds == 2.5);
    const std::vector<std::string>& order = each.advice.order;
    REQUIRE(order.size() == 4);
    CHECK(order[0] == ids[0]);
    CHECK(order[1] == ids[2]);
    const std::size_t evict = ids[2].find("/evict");
    CHECK(order[2] == (evict == std::string::npos ? ids[2] + "/evict" : ids[2].substr(0, evict)));
    CHECK(order[3] == ids[1]);
  }
  const auto counts = count_audits(regions);
  const AuditCount& order = counts.at("order");
  CHECK(order.accepted == 3);
  CHECK(order.rejected ==
        std::map<std::string, std::size_t>{{"no candidate of this region", 1}, {"repeated", 1}});
  const AuditCount& hints = counts.at("hints");
  CHECK(hints.accepted == 1);
  CHECK(hints.rejected == std::map<std::string, std::size_t>{
                              {"changes nothing", 1}, {"threads is never ... in a legal plan", 2}});
  CHECK(counts.at("other keys").rejected.at("no key of a reply") == 1);
  CHECK(counts.at("reply").accepted == 0);
  std::size_t useless = 0;
  for (const auto& [reason, times] : counts.at("reply").rejected) useless += times;
  CHECK(useless == regions.size() - 1);
}

TEST_CASE("study advise: without an author or a reply nothing is kept") {
  const std::vector<AskedRegion> regions = ask_qwen3(nothing, options());
  const auto refused = [&](const Author& author) {
    return ac::test::error_of(Fault::wrong_usage, [&] { recorded(regions, "replay:x", author); });
  };
  CHECK(refused({"", "2026-11-21"}).find("--model") != std::string::npos);
  CHECK(refused({"m", ""}).find("--date") != std::string::npos);
  const auto silent =
      ask_qwen3([](const Prompt&) { return Reply{.failure = "asleep"}; }, options());
  CHECK(!silent.empty());
  CHECK(recorded(silent, "told", {}).empty());
  CHECK(count_audits(silent).empty());
}

TEST_CASE("study advise: a reply is written once, and others' lines stay") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "advice.jsonl";
  const std::string odd = "{\"order\": [\"a\"]}\n\x01\xff\"\\ \xe2\x82\xac";
  CHECK(append_replies(file, {reply("one"), reply("two"), reply("one"), reply(odd)}) == 3);
  const std::string before = read_file(file, 1 << 20);
  CHECK(append_replies(file, {reply("two"), reply(odd)}) == 0);
  CHECK(read_file(file, 1 << 20) == before);
  RecordedReply other = reply("one");
  other.advisor = "ask:y";  // another draw
  RecordedReply prompt = reply("one");
  prompt.prompt_hash = "hash2";
  CHECK(append_replies(file, {other, prompt}) == 2);
  CHECK(read_replies(file).at("S").size() == 5);
  CHECK(read_file(file, 1 << 20).find(before) == 0);
  const Json line = Json::parse(before.substr(0, before.find('\n')));
  CHECK(line.at("prompt") == "prompt");
  CHECK(line.at("reply") == "one");
  CHECK_FALSE(line.contains("tokens"));  // not known is not 0

  // What others wrote by hand, and a last line without an end.
  write_file(file, R"({"region":"S","order":[],"model":"m","date":"d","reply":7})");
  CHECK(append_replies(file, {reply("one")}) == 1);
  CHECK(read_replies(file).at("S").size() == 2);
  // The same file serves as a recording.
  const auto replay = replay_provider((write_file(file, before), file));
  CHECK(replay->answer({{"x", "hash", "prompt", false}})[0].text == "one");
  CHECK(replay->answer({{"x", "hash", "prompt", false}})[0].date == "2026-01-02");
}

TEST_CASE("study advise: a file that is something else is not touched") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "advice.jsonl";
  for (const char* content : {"notes", "{}\n", "{\"region\":\"S\"", "[]\n"}) {
    write_file(file, content);
    CHECK_BAD_INPUT(append_replies(file, {reply("one")}), "line 1");
    CHECK(read_file(file, 1 << 20) == content);
  }
  CHECK(ac::test::error_of(Fault::job_failed, [&] {
          append_replies(folder.path() / "none" / "advice.jsonl", {reply("one")});
        }).find("none") != std::string::npos);
}
