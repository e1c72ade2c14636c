// Recorded tables, the statistics of searches over them, and their replay.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "expect_error.h"
#include "search_spaces.h"
#include "study/record.h"
#include "study/report.h"
#include "study/table_file.h"

using namespace ac;
using namespace ac::study;
using namespace ac::tune;

namespace {

const std::string kHeader =
    R"({"study":1,"device":"D","toolkit":"T","model":"M","date":"2026-01-01"})"
    "\n";
const std::string kRegion = R"({"region":0,"signature":"S","description":"linear","uses":3})"
                            "\n";
const std::string kPoint =
    R"({"region":0,"plan":"a","family":"f","fields":{"threads":64,"ring":"bulk","persistent":true},)"
    R"("predicted_us":2.5,"outcome":"measured","samples_us":[3,1,2]})"
    "\n";

Recording parse(const std::string& text) { return parse_recording(text, "table"); }

TimedTable table_of(const search::test::Known& known, const std::string& signature, int region) {
  TimedTable table;
  table.region = region, table.signature = table.description = signature;
  for (std::size_t i = 0; i < known.points.size(); ++i) {
    TimedPoint timed;
    timed.point = known.points[i];
    timed.verdict = known.outcomes[i].verdict;
    if (known.outcomes[i].ok()) timed.samples = {known.outcomes[i].microseconds};
    table.add(timed);
  }
  return table;
}

Recording recording_of(std::size_t regions, std::uint64_t seed) {
  Recording recording = parse(kHeader);
  for (std::size_t i = 0; i < regions; ++i)
    recording.tables.push_back(table_of(search::test::structured(seed + i),
                                        fmt::format("region {}", i), static_cast<int>(i)));
  return recording;
}

const ArmResult& arm(const ReplayGroup& group, const std::string& name) {
  for (const ArmResult& found : group.arms)
    if (found.name == name) return found;
  FAIL("no arm " << name);
  return group.arms[0];
}

}  // namespace

TEST_CASE("study: a table is read as it was written") {
  const Recording read = parse(kHeader + kRegion + kPoint +
                               R"({"region":0,"fallback":true,"samples_us":[9,8]})"
                               "\n" +
                               reference_line(0, "a", {10, 30, 20}).dump() + "\n" +
                               reference_line(0, "a", {25}, 0.5).dump() + "\n");
  REQUIRE(read.tables.size() == 1);
  CHECK(read.tables[0].points.size() == 1);
  CHECK(read.tables[0].drift() == doctest::Approx(0.25));
  const TimedTable& table = read.tables[0];
  CHECK(table.signature == "S");
  CHECK(table.fallback == std::vector<double>{9, 8});
  CHECK(table.attempt_seconds == std::vector<double>{0.5});
  const TimedPoint* point = table.find("a");
  REQUIRE(point);
  CHECK(point->outcome() == search::PointOutcome{search::Verdict::measured, 2});
  CHECK(point->was_admitted);
  const search::SitePlan& part = point->point.parts.at(0);
  CHECK(part.fields.at(0) == search::Field{"threads", std::int64_t{64}});
  CHECK(part.fields.at(1) == search::Field{"ring", "bulk"});
  CHECK(part.fields.at(2) == search::Field{"persistent", std::int64_t{1}});
  const Recording again =
      parse(kHeader + region_line(table).dump() + "\n" + to_json(*point, 0).dump() + "\n");
  CHECK(again.tables[0].points[0].point.parts == table.points[0].point.parts);

  // Later lines replace earlier ones.
  const std::string judged =
      R"({"region":0,"plan":"a","family":"f","fields":{},"predicted_us":2.5,"outcome":"wrong","why":"x"})"
      "\n";
  CHECK(parse(kHeader + kRegion + kPoint + judged).tables[0].points.size() == 1);
  CHECK_FALSE(parse(kHeader + kRegion + kPoint + judged).tables[0].optimum());
  CHECK(parse(kHeader + kRegion + judged).tables[0].points[0].outcome() ==
        search::PointOutcome{search::Verdict::wrong, 0, "x"});

  const std::string step =
      R"({"region":0,"plan":"s","parts":[{"site":"qkv","family":"f","fields":{"t":1}},)"
      R"({"site":"o","family":"g","fields":{}}],"predicted_us":1,"outcome":"failed","why":"w"})"
      "\n";
  const Recording of_step = parse(kHeader + kRegion + step);
  CHECK(of_step.tables[0].points[0].point.parts[1].site == "o");
  CHECK(to_json(of_step.tables[0].points[0], 0) == Json::parse(step));
}

TEST_CASE("study: a broken table is refused with its line and field") {
  const auto point = [](const std::string& from, const std::string& to) {
    std::string line = kPoint;
    line.replace(line.find(from), from.size(), to);
    return kHeader + kRegion + line;
  };
  CHECK_BAD_INPUT(parse(""), "table", "empty");
  CHECK_BAD_INPUT(parse("{}\n"), "line 1", "\"study\"");
  CHECK_BAD_INPUT(parse("[]\n"), "line 1", "no object");
  CHECK_BAD_INPUT(parse("{\"study\":2}\n"), "line 1", "\"study\"");
  CHECK_BAD_INPUT(parse("{\"study\":1}\n"), "line 1", "\"device\"");
  CHECK_BAD_INPUT(parse(kHeader + kPoint), "line 2", "\"region\"", "no line before");
  CHECK(parse(kHeader + kRegion + kHeader + kPoint).resumed.size() == 1);
  std::string elsewhere = kHeader;
  elsewhere.replace(elsewhere.find("\"D\""), 3, "\"E\"");
  CHECK_BAD_INPUT(parse(kHeader + kRegion + elsewhere + kPoint), "line 3", "\"device\"", "line 1");
  CHECK_BAD_INPUT(parse(kHeader + R"({"region":4,"signature":"S"})"
                                  "\n"),
                  "line 2", "\"region\"");
  CHECK_BAD_INPUT(parse(kHeader + kRegion + "nonsense\n"), "line 3");
  CHECK_BAD_INPUT(parse(kHeader + kRegion + kPoint.substr(0, 40)), "line 3", "cut off");
  CHECK_BAD_INPUT(parse(point("\"plan\"", "\"plank\"")), "line 3", "\"plan\"");
  CHECK_BAD_INPUT(parse(point("64", "6.5")), "line 3", "threads");
  CHECK_BAD_INPUT(parse(point("2.5", "-1")), "line 3", "\"predicted_us\"");
  CHECK_BAD_INPUT(parse(point("2.5", "\"x\"")), "line 3", "\"predicted_us\"");
  CHECK_BAD_INPUT(parse(point("\"measured\"", "\"great\"")), "line 3", "\"outcome\"");
  CHECK_BAD_INPUT(parse(point("[3,1,2]", "[]")), "line 3", "\"samples_us\"");
  CHECK_BAD_INPUT(parse(point("[3,1,2]", "[0]")), "line 3", "\"samples_us\"");
  CHECK_BAD_INPUT(parse(point("[3,1,2]", "7")), "line 3", "\"samples_us\"");
  CHECK_BAD_INPUT(parse(point("\"region\":0", "\"region\":-1")), "line 3", "\"region\"");
  const std::string other =
      R"({"region":0,"plan":"s","parts":[],"predicted_us":1,"outcome":"failed"})"
      "\n";
  CHECK_BAD_INPUT(parse(kHeader + kRegion + kPoint + other), "line 4", "\"parts\"");
  const std::string reference =
      R"({"region":0,"reference":"s","samples_us":[1],"attempt_seconds":0})"
      "\n";
  CHECK_BAD_INPUT(parse(kHeader + kRegion + reference), "line 3", "\"attempt_seconds\"");
  CHECK_BAD_INPUT(parse_replies("{\"region\":\"r\"}\n", "replies"), "line 1", "\"order\"");
  CHECK_BAD_INPUT(parse_replies(R"({"region":"r","order":[1],"model":"m","date":"d"})", "replies"),
                  "line 1", "\"order\"");
  CHECK_BAD_INPUT(
      parse_replies(R"({"region":"r","order":["a"],"weights":[1,1],"model":"m","date":"d"})", "r"),
      "line 1", "\"weights\"");
  CHECK_BAD_INPUT(parse_replies("\n\nx", "replies"), "line 3");
}

TEST_CASE("study: a recording resumes where it was cut off") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "t.jsonl";
  const Json header = Json::parse(kHeader);
  TimedPoint point = parse(kHeader + kRegion + kPoint).tables[0].points[0];
  {
    TableFile table(file, header);
    CHECK(table.region("S", "linear", 1) == 0);
    table.append(0, point);
    // Another process may not write meanwhile.
    CHECK(test::error_of(Fault::job_failed, [&] {
            TableFile(file, header);
          }).find("another process") != std::string::npos);
  }
  std::ofstream(file, std::ios::app) << R"({"region":0,"plan":"half)";
  {
    Json later = header;
    later["commit"] = "another";
    TableFile table(file, later);
    CHECK(table.region("S", "linear", 1) == 0);
    CHECK(read_recording(file).resumed.empty());  // nothing is new yet
    CHECK(table.region("S2", "add", 1) == 1);
    CHECK(table.table(0).find("a"));
    CHECK_FALSE(table.table(0).find("half"));
    point.point.id = "b";
    table.append(1, point);
  }
  const Recording read = read_recording(file);
  CHECK(read.tables.size() == 2);
  CHECK(read.tables[1].find("b"));
  // In front of what it recorded, once.
  REQUIRE(read.resumed.size() == 1);
  CHECK(read.resumed[0].at("commit") == "another");
  const std::string text = read_file(file, 1 << 20);
  CHECK(text.find("another") > text.find("\"a\""));
  CHECK(text.find("another") < text.find("S2"));
  Json other = header;
  other["model"] = "another";
  CHECK(test::error_of(Fault::wrong_usage, [&] { TableFile(file, other); }).find("model") !=
        std::string::npos);
  CHECK_BAD_INPUT(read_recording(folder.path() / "none.jsonl.gz"), "none.jsonl.gz");
  write_file(folder.path() / "bad.jsonl.gz", "no archive");
  CHECK_BAD_INPUT(read_recording(folder.path() / "bad.jsonl.gz"), "gzip");
}

TEST_CASE("study: what random search is expected to find is what it finds") {
  const search::test::Known known = search::test::unstructured(30, 8, 5);
  const search::ListedSpace space(known.points);
  std::vector<double> shares;
  for (const search::PointOutcome& outcome : known.outcomes)
    shares.push_back(outcome.ok() ? 1 / outcome.microseconds : 0);
  const Curve expected = expected_best(shares, 40);
  CHECK(expected[0] == doctest::Approx(std::accumulate(shares.begin(), shares.end(), 0.0) / 30));
  CHECK(expected[29] == doctest::Approx(1));
  CHECK(expected[39] == doctest::Approx(1));

  constexpr int kRuns = 3000;
  std::vector<double> sum(12), squares(12);
  double attempts = 0, reached = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto strategy = search::make_strategy("random", space, static_cast<std::uint64_t>(run));
    double best = 0, needed = 13;
    for (std::size_t n = 0; n < 12; ++n) {
      const int point = *strategy->propose();
      strategy->hear(point, known.outcomes[static_cast<std::size_t>(point)]);
      best = std::max(best, shares[static_cast<std::size_t>(point)]);
      if (best >= 1.0 / 3 && needed == 13) needed = static_cast<double>(n + 1);
      sum[n] += best, squares[n] += best * best;
    }
    attempts += needed / kRuns;
    reached += needed < 13 ? 1.0 / kRuns : 0;
  }
  for (std::size_t n = 0; n < 12; ++n) {
    CAPTURE(n);
    const double mean = sum[n] / kRuns;
    const double error = std::sqrt((squares[n] / kRuns - mean * mean) / kRuns);
    CHECK(std::abs(mean - static_cast<double>(expected[n])) < 4 * error + 1e-6);
  }
  const Hit hit = expected_hit(3, 30, 12);
  CHECK(std::abs(attempts - hit.attempts) < 0.35);
  CHECK(std::abs(reached - hit.reached) < 0.04);
  CHECK(expected_hit(3, 30, 1000).attempts == doctest::Approx(31.0 / 4));
  CHECK(expected_hit(0, 30, 10).attempts == doctest::Approx(11));
}

TEST_CASE("study: statistics of what is known") {
  CHECK(rank_correlation(std::vector<double>{1, 2, 3}, std::vector<double>{10, 20, 50}) ==
        doctest::Approx(1));
  CHECK(rank_correlation(std::vector<double>{1, 2, 3}, std::vector<double>{3, 2, 1}) ==
        doctest::Approx(-1));
  CHECK(rank_correlation(std::vector<double>{1, 1, 1}, std::vector<double>{3, 2, 1}) == 0);
  // By hand: ranks 0 1.5 1.5 3 against 0 1 2 3.
  CHECK(rank_correlation(std::vector<double>{1, 2, 2, 5}, std::vector<double>{1, 2, 3, 4}) ==
        doctest::Approx(4.5 / std::sqrt(4.5 * 5)));
  CHECK(sign_flip_p(std::vector<double>{1, 1, 1, 1}, 1) == doctest::Approx(2.0 / 16));
  CHECK(sign_flip_p(std::vector<double>{1, -1}, 1) == doctest::Approx(1));
  CHECK(sign_flip_p({}, 1) == 1);
  CHECK(sign_flip_p(std::vector<double>(40, 0.5), 1) < 0.001);
  std::vector<double> even;
  for (int i = 0; i < 40; ++i) even.push_back(i % 2 == 0 ? 1 : -1);
  CHECK(sign_flip_p(even, 1) == doctest::Approx(1));

  // Of normal draws the interval is that of the mean, at both levels.
  search::Random random(3);
  Curves curves;
  for (int space = 0; space < 40; ++space) {
    const auto level = static_cast<float>(random.unit());
    curves.push_back({});
    for (int r = 0; r < 10; ++r)
      curves.back().push_back({level + 0.1f * static_cast<float>(random.unit() - 0.5)});
  }
  const Interval found = bootstrap(curves, 2000, 1)[0];
  const double wide = 2 * 1.96 * std::sqrt(1.0 / 12 / 40);
  CHECK(found.low < found.mean);
  CHECK(found.high - found.low == doctest::Approx(wide).epsilon(0.2));
  // Of two replies that make the difference, their repetitions say nothing more: on one space, a
  // quarter of all resamples draw the same reply twice.
  Curves replies(1);
  for (int r = 0; r < 100; ++r) replies[0].push_back({r % 2 == 0 ? 0.0f : 1.0f});
  CHECK(bootstrap(replies, 2000, 1)[0].high < 0.65);
  const Interval of_two = bootstrap(replies, 2000, 1, {2})[0];
  CHECK(of_two.mean == doctest::Approx(0.5));
  CHECK(of_two.low == doctest::Approx(0));
  CHECK(of_two.high == doctest::Approx(1));
  // Paired, what spaces have in common falls out.
  Curves better = curves;
  for (auto& repetitions : better)
    for (Curve& curve : repetitions) curve[0] += 0.02f;
  const Interval difference = bootstrap_difference(better, curves, 2000, 1)[0];
  CHECK(difference.mean == doctest::Approx(0.02).epsilon(1e-3));
  CHECK(difference.low > 0);
  CHECK(difference.high < 0.05);
}

TEST_CASE("study: p-values are corrected by Holm's method") {
  // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
  const std::vector<double> p{0.01, 0.04, 0.03, 0.005}, corrected{0.03, 0.06, 0.06, 0.02};
  const std::vector<double> got = holm(p);
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(got[i] == doctest::Approx(corrected[i]));
  CHECK(holm(std::vector<double>{0.5, 0.9}) == std::vector<double>{1, 1});
  CHECK(holm({}).empty());
}

TEST_CASE("study: nothing breaks even that saves no attempt") {
  CallCosts costs;
  costs.calls = 4, costs.prompt_tokens = 1e6, costs.reply_tokens = 1e5, costs.seconds = 30;
  const Prices prices{3, 15, 3600, "nobody"};
  CHECK(costs.money(prices) == doctest::Approx(4.5));
  CHECK(break_even(costs, 10, prices).by_seconds == doctest::Approx(3));
  CHECK(break_even(costs, 10, prices).by_money == doctest::Approx(0.45));
  CHECK(!break_even(costs, 10, std::nullopt).by_money);
  for (const double saved : {0.0, -2.0}) {
    CHECK(!break_even(costs, saved, prices).by_seconds);
    CHECK(!break_even(costs, saved, prices).by_money);
  }
}

TEST_CASE("study: replay tells good strategies and good advice from bad ones") {
  const std::vector<Recording> recordings{recording_of(12, 500)};
  ReplayOptions options;
  options.attempts = 32, options.repetitions = 20, options.resamples = 200;
  SUBCASE("without replies the advice arms are empty") {
    const Replayed replayed = replay(recordings, {}, options);
    REQUIRE(replayed.groups.size() == 1);
    for (const ArmResult& found : replayed.groups[0].arms)
      CHECK(found.name.find("advice") == std::string::npos);
    CHECK(to_markdown(replayed).find("its arm, and the falsifiers") != std::string::npos);
    // Simulated and exact agree.
    const ReplayGroup& group = replayed.groups[0];
    for (std::size_t n = 0; n < 32; ++n)
      CHECK(arm(group, "random").band[n].mean ==
            doctest::Approx(arm(group, "random (exact)").band[n].mean).epsilon(0.05));
    for (const Comparison& compared : group.comparisons)
      if (compared.arm == "tree" && compared.against == "random (exact)") {
        CHECK(compared.difference[15].low > 0);
        CHECK(compared.p[4] < 0.01);
      }
    CHECK(to_json(replay(recordings, {}, options)) == to_json(replayed));
    options.jobs = 2;
    CHECK(to_json(replay(recordings, {}, options)) == to_json(replayed));
    options.seed = 2;
    CHECK(to_json(replay(recordings, {}, options)) != to_json(replayed));
  }
  SUBCASE("with replies") {
    Replies replies;
    for (const TimedTable& table : recordings[0].tables) {
      std::vector<const TimedPoint*> points;
      for (const TimedPoint& point : table.points)
        if (point.outcome().ok()) points.push_back(&point);
      std::sort(points.begin(), points.end(), [](const TimedPoint* a, const TimedPoint* b) {
        return a->outcome().microseconds < b->outcome().microseconds;
      });
      study::OrderReply reply{{}, {}, "a model", "a date", 10, 1};
      for (std::size_t i = 0; i < points.size(); i += 10)
        reply.order.push_back(points[i]->point.id);
      replies[table.signature].push_back(reply);
    }
    const Replayed replayed = replay(recordings, replies, options);
    const ReplayGroup& group = replayed.groups[0];
    CHECK(replayed.advisors == std::vector<std::string>{"a model, a date"});
    CHECK(arm(group, "advice").band[0].mean == doctest::Approx(1));
    CHECK(arm(group, "advice+tree").band[0].mean == doctest::Approx(1));
    CHECK(arm(group, "advice (reversed)").band[0].mean < 0.9);
    CHECK(arm(group, "advice (shuffled)").band[0].mean < 0.95);
    CHECK(replayed.cases[0].advised_correlation.at(0) == doctest::Approx(1));
    bool falsified = false;
    for (const Comparison& compared : group.comparisons)
      if (compared.arm == "advice+tree" && compared.against == "advice+tree (shuffled)")
        falsified = compared.difference[0].low > 0;
    CHECK(falsified);
    CHECK(replayed.unadvised.empty());
    CHECK(replayed.other_replies == 0);
    CHECK(replayed.known_plans == replayed.named_plans);

    // Two draws, of which one is worthless, and a region that nobody was asked about.
    const std::string silent = recordings[0].tables[3].signature;
    Replies draws = replies;
    draws.erase(silent);
    draws["elsewhere"] = {replies.at(silent)[0], replies.at(silent)[0]};
    for (auto& [signature, list] : draws) {
      if (signature == "elsewhere") continue;
      list.push_back(list[0]);
      list[1].order = {"no such plan"};
    }
    const Replayed drawn = replay(recordings, draws, options);
    CHECK(drawn.replies == 22);
    CHECK(drawn.other_replies == 2);
    CHECK(drawn.named_plans == drawn.known_plans + 11);
    CHECK(drawn.unadvised == std::vector<std::string>{"M: " + silent});
    CHECK(to_markdown(drawn).find("on the other regions alone:\n- M: " + silent + "\n") !=
          std::string::npos);
    // All arms of a group ran on the same regions; those without advice are a group with all.
    REQUIRE(drawn.groups.size() == 2);
    CHECK(drawn.groups[0].cases.size() == 11);
    CHECK(drawn.groups[1].cases.size() == 12);
    for (const ReplayGroup& of : drawn.groups)
      for (const ArmResult& found : of.arms) CHECK(found.cases == of.cases);
    for (const ArmResult& found : drawn.groups[1].arms)
      CHECK(found.name.find("advice") == std::string::npos);
    const ArmResult& advice = arm(drawn.groups[0], "advice");
    const ArmResult& heuristic = arm(drawn.groups[0], "heuristic");
    for (std::size_t i = 0; i < advice.cases.size(); ++i) {
      CHECK(advice.cases[i] != 3);
      REQUIRE(advice.shares[i].size() == 2);  // a search for each reply
      CHECK(advice.shares[i][0][0] == doctest::Approx(1));
      CHECK(advice.shares[i][1] == heuristic.shares[i][0]);
    }
    CHECK(arm(drawn.groups[0], "advice+tree").draws == Draws(11, 2));
    CHECK(heuristic.draws.empty());

    const TemporaryFolder folder;
    write_report(replayed, folder.path() / "report");
    for (const char* name : {"report.md", "report.json", "curves.svg"})
      CHECK(std::filesystem::file_size(folder.path() / "report" / name) > 1000);
    const std::string curves = read_file(folder.path() / "report/curves.svg", 1 << 20);
    CHECK(curves.find(">advice (reversed)<") != std::string::npos);
    CHECK(curves.find(">advice+tree<") != std::string::npos);
    CHECK(curves.find(">advice+tree (reversed)<") == std::string::npos);
  }
}

TEST_CASE("study: the compiler's own order is an arm of regions") {
  TimedTable table;
  table.signature = table.description = "S";
  // Best predicted first; two outlines of gemv, one of gemm.
  const std::vector<std::string> ids{"gemv/N64/1", "gemv/N64/2", "gemv/N64/3", "gemv/R64/1",
                                     "gemm/8/1"};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TimedPoint timed;
    timed.point = {ids[i], {{"", "f", {{"n", static_cast<std::int64_t>(i)}}}}, 1.0 + double(i)};
    timed.samples = {5.0 - double(i)};
    table.add(timed);
  }
  Recording recording = parse(kHeader);
  recording.tables.push_back(table);
  ReplayOptions options;
  options.attempts = 5, options.repetitions = 2, options.resamples = 10;
  const Replayed replayed = replay({recording}, {}, options);
  // gemv/N64/1, gemv/R64/1, gemm/8/1 and then the others of the first outline.
  const Curve expected{1.0f / 5, 1.0f / 2, 1, 1, 1};
  const Curve& found = arm(replayed.groups[0], "diverse").shares[0][0];
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
  CHECK(arm(replayed.groups[0], "heuristic").shares[0][0][2] == doctest::Approx(1.0 / 3));
}

TEST_CASE("study: regions of one kind are no independent evidence") {
  // Ten regions, nine of one kind: what differs is the kind.
  Curves curves(10, {Curve{0}});
  curves[9] = {Curve{1}};
  Kinds kinds(10, 0);
  kinds[9] = 1;
  const Interval by_space = bootstrap(curves, 2000, 1)[0];
  const Interval by_kind = bootstrap(curves, 2000, 1, {}, kinds)[0];
  CHECK(by_space.high < 0.5);
  CHECK(by_kind.high == 1);  // both draws may be of the small kind
  CHECK(by_kind.mean == by_space.mean);
  CHECK(bootstrap(curves, 100, 1, {}, Kinds(10, 7))[0].high < 0.5);
  const std::vector<double> differences{1, 2, 4};
  CHECK(sums_by_kind(differences, {5, 3, 5}) == std::vector<double>{2, 5});
  CHECK(sums_by_kind(differences, {}) == differences);
}

TEST_CASE("study: a recorded step is searched site by site") {
  Recording recording = parse(kHeader);
  const search::test::Step step(3, 9);
  TimedTable table;
  table.signature = table.description = "step";
  search::Random random(1);
  for (int i = 0; i < 400; ++i) {
    const int schedule = step.space.at(random.below(step.space.size()));
    TimedPoint timed;
    timed.point = {step.space.id(schedule), {}, step.space.predicted(schedule)};
    for (std::size_t site = 0; site < step.space.sites().size(); ++site) {
      const int choice = step.space.choices(schedule)[site];
      const search::Site& of = step.space.sites()[site];
      search::SitePlan part{of.name, "absent", {}};
      if (choice >= 0) {
        part = of.choices[static_cast<std::size_t>(choice)].parts[0];
        part.site = of.name;
      }
      timed.point.parts.push_back(part);
    }
    const search::PointOutcome outcome = step.outcome(schedule);
    timed.verdict = outcome.verdict;
    if (outcome.ok()) timed.samples = {outcome.microseconds};
    table.add(timed);
  }
  std::string text = kHeader + region_line(table).dump() + "\n";
  for (const TimedPoint& point : table.points) text += to_json(point, 0).dump() + "\n";
  ReplayOptions options;
  options.repetitions = 20, options.resamples = 100;
  const Replayed replayed = replay({parse(text)}, {}, options);
  REQUIRE(replayed.groups.size() == 1);
  const ReplayGroup& group = replayed.groups[0];
  CHECK(group.name == "step of M: step");
  for (const ArmResult& found : group.arms) CHECK(found.name != "diverse");  // of regions only
  CHECK(arm(group, "tree").band[15].mean > arm(group, "random (exact)").band[15].high);
  CHECK(to_markdown(replayed).find("seeds only") != std::string::npos);
}

TEST_CASE("study: what cannot be searched is left out, with the reason") {
  Recording recording = recording_of(1, 1);
  recording.tables.push_back(recording.tables[0]);  // as of another model
  TimedTable small = recording.tables[0];
  small.signature = "small", small.points.resize(2);
  recording.tables.push_back(small);
  TimedTable failed = recording.tables[0];
  failed.signature = "failed";
  for (TimedPoint& point : failed.points) point.verdict = search::Verdict::wrong;
  recording.tables.push_back(failed);
  ReplayOptions options;
  options.repetitions = 2, options.resamples = 10;
  const Replayed replayed = replay({recording}, {}, options);
  CHECK(replayed.cases.size() == 1);
  CHECK(replayed.skipped.size() == 3);
  recording.tables = {failed};
  CHECK_BAD_INPUT(replay({recording}, {}, options), "nothing to search");
  options.strategies = {"magic"};
  CHECK(test::error_of(Fault::wrong_usage, [&] {
          replay({recording_of(1, 1)}, {}, options);
        }).find("magic") != std::string::npos);
}

TEST_CASE("study: a plan's fields") {
  const Choice choice = Implementation<GemvTask>{{}, {.threads = 512, .rows = 2}};
  const std::vector<search::Field> fields = tune::fields_of(choice);
  REQUIRE(fields.size() > 5);
  CHECK(fields[0] == search::Field{"threads", std::int64_t{512}});
  CHECK(fields[1] == search::Field{"rows", std::int64_t{2}});
  for (const search::Field& field : fields)
    if (field.name == "ring") CHECK(std::holds_alternative<std::string>(field.value));
}
