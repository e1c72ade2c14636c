// Programs as files: what is written is read back, and nothing that a damaged or hostile file says
// gets past the reader.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "expect_error.h"
#include "named_phase.h"
#include "program/program.h"

using namespace ac;
using namespace ac::test;

namespace {

enum Index : std::int32_t {
  ids,
  position,
  token,
  weight,
  frequencies,
  rope,
  keys,
  values,
  logits,
  settings,
  allowed
};

// Of one layer and one kernel, as small as a program can be that has everything.
Program tiny() {
  Program p;
  p.model = "tiny", p.target = "host", p.dtype = DType::f16;
  p.vocab = 10, p.max_context = 32;
  p.states = {kv_state(DType::f16, 2, 4, 4, 0, "", 32)};
  p.stores = {{"checkpoint", "weights"}};
  p.arena_bytes = 1024, p.constant_bytes = 8;
  p.kernels = {{"k", "host/k.so"}};
  using Role = Buffer::Role;
  p.buffers = {
      {.role = Role::ids, .name = "ids", .dtype = DType::i64, .bytes = Count(0, 8)},
      {.role = Role::position, .name = "position", .dtype = DType::i32, .bytes = 4},
      {.role = Role::token, .name = "token", .dtype = DType::i32, .bytes = 4},
      {.role = Role::weight,
       .name = "w",
       .dtype = DType::f16,
       .bytes = 120,
       .store = "checkpoint",
       .key = "w",
       .shape = {10, 6}},
      {.role = Role::constant, .name = "frequencies", .dtype = DType::f32, .bytes = 8},
      {.role = Role::rope_table,
       .name = "rope",
       .dtype = DType::f32,
       .bytes = 32 * 2 * 2 * 4,
       .source = frequencies,
       .scale = 1.25},
      {.role = Role::state, .name = "keys", .dtype = DType::f16, .bytes = 512, .state = 0},
      {.role = Role::state,
       .name = "values",
       .dtype = DType::f16,
       .bytes = 512,
       .state = 0,
       .tensor = kValues},
      {.role = Role::scratch, .name = "logits", .dtype = DType::f16, .bytes = 20, .offset = 256},
      {.role = Role::settings, .name = "settings", .dtype = DType::i64, .bytes = 24},
      {.role = Role::allowed, .name = "allowed", .dtype = DType::i32, .bytes = 4},
      {.role = Role::until, .name = "until", .dtype = DType::i32, .bytes = 64},
      {.role = Role::log, .name = "log", .dtype = DType::i32, .bytes = 33 * 4},
  };
  Launch launch;
  launch.kernel = "k";
  launch.grid = {Count(0, 1), 2, 1};
  launch.grid[0].per = 4, launch.grid[0].times = 3, launch.grid[0].at_most = 7;
  launch.threads = 64, launch.shared_bytes = 128;
  launch.params.assign(192, std::byte{0xab});
  launch.pointers = {{0, ids, Count(-8, 8)}, {8, logits, 4}};
  launch.numbers = {{16, 4, Count(1, 2)}, {24, 8, std::int64_t{1} << 40}};
  launch.maps = {{64, values, 16, Count(0, 1), 5, 8, 128, DType::bf16}};
  p.phases = {{"prefill", 6, 8, 0, {launch}, {"k at layer 0"}, ids, logits},
              {"prefill to 2", 2, 2, 0, {launch}, {"k"}, ids, logits},
              {"prefill to 5", 3, 5, 0, {launch}, {"k"}, ids, logits},
              {"decode", 1, 1, 0, {launch, launch}, {"a", "b"}, ids, logits},
              {"decode", 1, 1, 16, {launch}, {"c"}, ids, logits}};
  for (Phase& phase : p.phases) phase.draw = {launch}, phase.masked = {launch, launch, launch};
  return p;
}

Program read(const Json& json) { return program_from_json(json, "program.json"); }

// All places in a JSON text that hold a value.
void visit(Json& json, const std::function<void(Json&)>& see) {
  see(json);
  if (json.is_structured())
    for (Json& inner : json) visit(inner, see);
}

}  // namespace

TEST_CASE("a program comes back from its file as it was") {
  const Program program = tiny();
  CHECK_NOTHROW(verify(program, "tiny"));
  CHECK(read(parse_json(to_json(program).dump(), "x")) == program);
}

TEST_CASE("a launch of blocks that wait for each other, with what it keeps and boxes of panels") {
  Program program = tiny();
  program.buffers.push_back({.role = Buffer::Role::kept, .name = "words", .bytes = 264});
  Launch& launch = named(program, "decode").launches[0];
  launch.at_once = true;
  CHECK_NOTHROW(verify(program, "tiny"));
  CHECK(read(to_json(program)) == program);
  Launch::Map& map = named(program, "prefill").launches[0].maps[0];
  map.box_panels = 8;
  CHECK_BAD_INPUT(read(to_json(program)), "impossible boxes");  // of columns that are no panels
  map.columns = map.pitch = 64, map.rows = 1, map.offset = 0;
  map.buffer = static_cast<Index>(program.buffers.size());
  program.buffers.push_back({.role = Buffer::Role::kept, .name = "matrix", .bytes = 128});
  CHECK(read(to_json(program)) == program);
}

TEST_CASE("a launch that can say when its blocks come to points of its work") {
  Program program = tiny();
  Launch& launch = named(program, "decode").launches[0];
  launch.grid = {4, 2, 1};
  launch.stamps = {.at = 32, .rounds = 3, .points = {"read", "written"}};
  CHECK_NOTHROW(verify(program, "tiny"));
  CHECK(read(to_json(program)) == program);
  CHECK(bytes_of(*launch.stamps, launch) == 4 * 2 * 3 * 2 * 8);
  int here = 0;
  const Launch with_stamps = stamped(launch, &here);
  void* address = nullptr;
  std::memcpy(&address, &with_stamps.params[32], sizeof address);
  CHECK(address == &here);

  const auto refused = [&](const char* why, const std::function<void(Launch&)>& change) {
    Program changed = program;
    change(named(changed, "decode").launches[0]);
    CHECK_BAD_INPUT(read(to_json(changed)), why);
  };
  refused("in their place", [](Launch& of) { of.stamps->at = 36; });
  refused("in their place", [](Launch& of) { of.stamps->at = 192; });
  refused("in their place", [](Launch& of) { of.stamps->at = 0xfffffff8; });
  refused("not known", [](Launch& of) { of.grid[0] = Count(0, 1); });
  refused("too large", [](Launch& of) { of.grid[1] = 5000; });
  refused("impossible number", [](Launch& of) { of.stamps->rounds = 0; });
  refused("impossible number", [](Launch& of) { of.stamps->rounds = INT64_MAX; });
  refused("impossible number", [](Launch& of) { of.stamps->points.clear(); });
  refused("too much memory", [](Launch& of) {
    of.grid[0] = 4000, of.stamps->rounds = 4000, of.stamps->points.assign(100, "x");
  });
}

TEST_CASE("a step is run by the phase of its tokens that begins last before it") {
  Program program = tiny();
  const auto ran_by = [&](std::int64_t tokens, std::int64_t cached) {
    return program.phase_of(tokens, cached).label();
  };
  std::vector<std::string> labels;
  for (const Phase& phase : program.phases) labels.push_back(phase.label());
  CHECK(labels == std::vector<std::string>{"prefill", "prefill to 2", "prefill to 5", "decode",
                                           "decode from 16"});
  // Whatever their order.
  for (int turn = 0; turn < 2; ++turn, std::ranges::reverse(program.phases)) {
    CHECK_NOTHROW(verify(program, "tiny"));
    CHECK(program.longest_step() == 8);
    for (const std::int64_t cached : {0, 15, 16, 31}) {
      CHECK(ran_by(1, cached) == (cached < 16 ? "decode" : "decode from 16"));
      for (const auto& [tokens, expected] :
           std::initializer_list<std::pair<int, const char*>>{{2, "prefill to 2"},
                                                              {3, "prefill to 5"},
                                                              {5, "prefill to 5"},
                                                              {6, "prefill"},
                                                              {8, "prefill"}})
        CHECK(ran_by(tokens, cached) == expected);
    }
  }
}

TEST_CASE("a phase may give the logits of all rows, beside those of the last row alone") {
  Program program = tiny();
  Phase all = named(program, "prefill to 5");
  all.name = "all logits", all.rows = Rows::all, all.min_tokens = 1, all.max_tokens = 4;
  all.logits = static_cast<Index>(program.buffers.size());
  program.buffers.push_back({.role = Buffer::Role::scratch,
                             .name = "rows",
                             .dtype = DType::f16,
                             .bytes = Count(0, 20),
                             .offset = 256});
  program.phases.push_back(all);
  CHECK_NOTHROW(verify(program, "tiny"));
  CHECK(read(to_json(program)) == program);
  CHECK(program.longest_step() == 8);
  CHECK(program.longest_step(Rows::all) == 4);
  CHECK(tiny().longest_step(Rows::all) == 0);
  CHECK(program.phase_of(3, 20).name == "prefill to 5");
  CHECK(program.phase_of(3, 20, Rows::all).name == "all logits");

  const auto refused = [&](const char* part, const std::function<void(Program&)>& harm) {
    Program harmed = program;
    harm(harmed);
    CAPTURE(part);
    CHECK_BAD_INPUT(verify(harmed, "program.json"), "program.json", part);
    CHECK_BAD_INPUT(read(to_json(harmed)), "program.json");
  };
  refused("no phase has steps of 1 ", [](Program& p) { p.phases.back().min_tokens = 2; });
  refused("up to 9 tokens, and others 8", [](Program& p) { p.phases.back().max_tokens = 9; });
  refused("one name", [](Program& p) { p.phases.back().name = "prefill to 5"; });
  refused("no logits", [](Program& p) { p.phases.back().logits = logits; });
  refused("no logits", [](Program& p) { p.buffers.back().bytes = Count(0, 19); });
  refused("logits of the last row alone", [](Program& p) { p.phases = {p.phases.back()}; });
  Json odd = to_json(program);
  for (const Json& rows : {Json("first"), Json(1), Json()}) {
    odd["phases"][5]["rows"] = rows;
    CHECK_BAD_INPUT(read(odd), "program.json", "rows");
  }
}

TEST_CASE("counts stay in their bounds, whatever they are made of") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  Count count(most, most);
  CHECK(count.at(most) == most);
  count.times = most;
  CHECK(count.at(3) == most);
  count.per = most;
  CHECK(count.at(1) == most);  // (2 most + most - 1) / most = 2, times most
  count.times = 3;
  CHECK(count.at(1) == 6);
  count.at_most = 5;
  CHECK(count.at(1) == 5);
  Count low(std::numeric_limits<std::int64_t>::min(), 0);
  low.times = most;
  CHECK(low.at(1) == std::numeric_limits<std::int64_t>::min());
  for (const char* bad :
       {R"({"fixed": 1, "per_token": 1, "per": 0})", R"({"fixed": 1, "per_token": -1})",
        R"({"fixed": 1, "per_token": 1, "times": -1})",
        R"({"fixed": 1, "per_token": 1, "at_most": -1})",
        R"({"fixed": 18446744073709551615, "per_token": 1})", "18446744073709551615", "1.5",
        "\"1\"", "null", "[]"}) {
    CAPTURE(bad);
    CHECK_BAD_INPUT(count_from_json(Json::parse(bad), "here"), "here");
  }
}

TEST_CASE("a program that reaches outside of what it has is refused") {
  const auto refused = [](const char* part, const std::function<void(Program&)>& harm) {
    Program program = tiny();
    harm(program);
    CAPTURE(part);
    CHECK_BAD_INPUT(verify(program, "program.json"), "program.json", part);
    // And so it is as a file.
    CHECK_BAD_INPUT(read(to_json(program)), "program.json");
  };
  const auto buffer = [](Program& p, Index i) -> Buffer& {
    return p.buffers[static_cast<std::size_t>(i)];
  };
  const auto launch = [](Program& p) -> Launch& { return named(p, "decode").launches[1]; };
  constexpr std::int64_t huge = std::int64_t{1} << 62;

  refused("positive", [](Program& p) { p.max_context = 0; });
  refused("32 bits", [](Program& p) { p.max_context = huge; });
  refused("32 bits", [](Program& p) { p.vocab = huge; });
  refused("arena", [](Program& p) { p.arena_bytes = -1; });
  refused("arena", [](Program& p) { p.constant_bytes = huge; });
  refused("0 phases", [](Program& p) { p.phases.clear(); });
  refused("257 phases", [](Program& p) { p.phases.resize(257); });
  for (const char* name : {"", "de\ncode", "decode\x1b[2J", "d/e"})
    refused("letters", [&](Program& p) { p.phases[0].name = name; });
  refused("steps of 1 to 0", [](Program& p) { named(p, "decode").max_tokens = 0; });
  refused("steps of 0 to 1", [](Program& p) { named(p, "decode").min_tokens = 0; });
  refused("steps of 6 to", [](Program& p) { named(p, "prefill").max_tokens = huge; });
  refused("steps of 6 to 33", [](Program& p) { named(p, "prefill").max_tokens = 33; });
  refused("begins after -1", [](Program& p) { named(p, "decode from 16").from = -1; });
  refused("prefill to 2 and prefill to 5 both have steps of 2",
          [](Program& p) { named(p, "prefill to 5").min_tokens = 2; });
  refused("prefill and prefill to 5 both have steps of 6",
          [](Program& p) { named(p, "prefill to 5").max_tokens = 6; });
  refused("decode and decode both have steps of 1",
          [](Program& p) { named(p, "decode from 16").from = 0; });
  refused("both have steps of 1", [](Program& p) { p.phases.push_back(p.phases.back()); });
  refused("prefill to 2 and decode from 16 both have steps of 2",
          [](Program& p) { named(p, "decode from 16").max_tokens = 2; });
  refused("no phase has steps of 1 ", [](Program& p) { named(p, "decode").from = 3; });
  refused("no phase has steps of 1 ", [](Program& p) { p.phases.resize(3); });
  refused("no phase has steps of 3 ", [](Program& p) { p.phases.erase(p.phases.begin() + 2); });
  refused("no phase has steps of 5 ", [](Program& p) { named(p, "prefill to 5").max_tokens = 4; });
  refused("one name", [](Program& p) { named(p, "prefill to 5").name = "prefill"; });
  refused("one name", [](Program& p) { named(p, "decode from 16").name = "later"; });
  refused("prefill to 5 launch 0",
          [](Program& p) { named(p, "prefill to 5").launches[0].pointers[0].buffer = 99; });
  refused("another type than those of prefill", [](Program& p) {
    p.buffers.push_back(
        {.role = Buffer::Role::ids, .name = "i", .dtype = DType::i32, .bytes = Count(0, 4)});
    named(p, "prefill to 2").ids = static_cast<std::int32_t>(p.buffers.size()) - 1;
  });

  refused("empty axis", [](Program& p) { p.states[0].tensors[0].size = 0; });
  refused("more heads", [](Program& p) { p.states[0].tensors[0].rows = 3; });
  refused("keys and values", [](Program& p) { p.states[0].tensors.pop_back(); });
  refused("keys and values", [](Program& p) { p.states[0].tensors[1].name = "keys"; });
  refused("needs 32", [](Program& p) { p.states[0].slots = 31; });
  refused("needs 11", [](Program& p) { p.states[0].window = 4, p.states[0].slots = 10; });
  refused("window", [](Program& p) { p.states[0].window = -1; });
  refused("keys", [](Program& p) {
    for (StateTensor& tensor : p.states[0].tensors) tensor.rows = huge;
  });
  refused("state 1", [&](Program& p) { buffer(p, values).state = 1; });
  refused("state -1", [&](Program& p) { buffer(p, keys).state = -1; });
  refused("no tensor 2", [&](Program& p) { buffer(p, values).tensor = 2; });
  refused("no tensor -1", [&](Program& p) { buffer(p, values).tensor = -1; });
  refused("keys", [&](Program& p) { buffer(p, keys).bytes = 511; });

  refused("integers", [&](Program& p) { buffer(p, ids).dtype = DType::f32; });
  refused("too short", [&](Program& p) { buffer(p, ids).bytes = 63; });
  refused("position", [&](Program& p) { buffer(p, position).bytes = 3; });
  refused("token", [&](Program& p) { buffer(p, token).dtype = DType::i64; });
  refused("w)", [&](Program& p) { buffer(p, weight).shape = {10, 7}; });
  refused("w)", [&](Program& p) { buffer(p, weight).shape = {-10, -6}; });
  refused("w)", [&](Program& p) { buffer(p, weight).shape = {huge, huge, 0}; });
  refused("w)", [&](Program& p) { buffer(p, weight).bytes = Count(112, 1); });
  refused("no store", [&](Program& p) { buffer(p, weight).store = "elsewhere"; });
  refused("frequencies", [&](Program& p) { buffer(p, frequencies).offset = 1; });
  refused("frequencies", [&](Program& p) { buffer(p, frequencies).offset = -8; });
  refused("rope", [&](Program& p) { buffer(p, rope).source = weight; });
  refused("buffer 99", [&](Program& p) { buffer(p, rope).source = 99; });
  refused("rope", [&](Program& p) { buffer(p, rope).bytes = 8; });
  refused("logits", [&](Program& p) { buffer(p, logits).bytes = -1; });
  refused("logits", [&](Program& p) { buffer(p, logits).bytes = Count(20, huge); });

  refused("notes", [](Program& p) { named(p, "decode").notes.pop_back(); });
  refused("buffer -1", [](Program& p) { named(p, "decode").ids = -1; });
  refused("buffer 99", [](Program& p) { named(p, "prefill").logits = 99; });
  refused("log", [](Program& p) { p.buffers.back().bytes = 4; });
  refused("log", [](Program& p) { p.buffers.pop_back(); });
  refused("until is not of 16 i32", [](Program& p) { std::end(p.buffers)[-2].bytes = 60; });
  refused("0 buffers of the role until", [](Program& p) { p.buffers.erase(p.buffers.end() - 2); });
  refused("token ids", [](Program& p) { named(p, "prefill").ids = position; });
  refused("no logits", [&](Program& p) { buffer(p, logits).bytes = 18; });
  refused("no logits", [](Program& p) { named(p, "prefill").logits = ids; });
  refused("arena", [&](Program& p) { buffer(p, logits).offset = 1005; });
  refused("arena", [&](Program& p) { buffer(p, logits).offset = -20; });
  refused("arena", [&](Program& p) { buffer(p, logits).offset = huge; });

  refused("settings", [&](Program& p) { buffer(p, settings).bytes = 23; });
  refused("settings", [&](Program& p) { buffer(p, settings).bytes = Count(16, 8); });
  refused("2 buffers of the role settings",
          [&](Program& p) { p.buffers.insert(p.buffers.begin() + settings, buffer(p, settings)); });
  refused("no settings", [&](Program& p) { buffer(p, settings).role = Buffer::Role::counters; });
  refused("one phase can draw", [](Program& p) { named(p, "prefill").draw.clear(); });
  refused("draw 0", [](Program& p) { named(p, "decode").draw[0].pointers[0].buffer = 99; });
  refused("draw 0", [](Program& p) { named(p, "prefill").draw[0].kernel = "other"; });

  refused("allowed is not of 1 i32", [&](Program& p) { buffer(p, allowed).bytes = 8; });
  refused("0 buffers of the role allowed",
          [&](Program& p) { buffer(p, allowed).role = Buffer::Role::counters; });
  refused("0 launches that choose under a mask",
          [](Program& p) { named(p, "prefill").masked.clear(); });
  refused("1 launches that choose under a mask",
          [](Program& p) { named(p, "decode").masked.resize(1); });
  refused("3 launches that choose under a mask", [](Program& p) {
    for (Phase& phase : p.phases) phase.draw.clear();
  });
  refused("masked 1", [](Program& p) { named(p, "decode").masked[1].pointers[0].buffer = 99; });
  refused("masked 0", [](Program& p) { named(p, "prefill").masked[0].kernel = "other"; });

  refused("no such kernel", [&](Program& p) { launch(p).kernel = "other"; });
  refused("not in the package", [](Program& p) { p.kernels["k"] = "../k.so"; });
  refused("not in the package", [](Program& p) { p.kernels["k"] = "/lib/k.so"; });
  refused("launch shape", [&](Program& p) { launch(p).threads = 0; });
  refused("launch shape", [&](Program& p) { launch(p).threads = 1025; });
  refused("launch shape", [&](Program& p) { launch(p).shared_bytes = -1; });
  refused("grid", [&](Program& p) { launch(p).grid[2] = 0; });
  refused("grid", [&](Program& p) { launch(p).grid[1] = huge; });
  refused("grid", [&](Program& p) { named(p, "prefill").launches[0].grid[1] = Count(1, huge); });
  refused("beyond its parameters", [&](Program& p) { launch(p).pointers[0].at = 185; });
  refused("beyond its parameters", [&](Program& p) { launch(p).pointers[0].at = 0xffffffff; });
  refused("beyond its parameters", [&](Program& p) { launch(p).params.resize(10); });
  refused("beyond its parameters", [&](Program& p) { launch(p).params.clear(); });
  refused("buffer 99", [&](Program& p) { launch(p).pointers[0].buffer = 99; });
  refused("buffer -2", [&](Program& p) { launch(p).pointers[0].buffer = -2; });
  refused("outside of logits", [&](Program& p) { launch(p).pointers[1].offset = 21; });
  refused("outside of ids", [&](Program& p) { launch(p).pointers[0].offset = Count(-9, 8); });
  refused("outside of ids",
          [&](Program& p) { named(p, "prefill").launches[0].pointers[0].offset = Count(0, huge); });
  refused("a number", [&](Program& p) { launch(p).numbers[0].bytes = 3; });
  refused("a number", [&](Program& p) { launch(p).numbers[1].at = 185; });
  refused("a number", [&](Program& p) { launch(p).numbers[0].value = huge; });

  const auto map = [](Program& p) -> Launch::Map& {
    return named(p, "prefill").launches[0].maps[0];
  };
  refused("place", [&](Program& p) { map(p).at = 32; });
  refused("place", [&](Program& p) { map(p).at = 128; });
  refused("place", [&](Program& p) { map(p).at = 0xffffffc0; });
  refused("buffer 99", [&](Program& p) { map(p).buffer = 99; });
  refused("buffer -1", [&](Program& p) { map(p).buffer = -1; });
  refused("arena", [&](Program& p) {
    map(p).buffer = static_cast<std::int32_t>(p.buffers.size());
    p.buffers.push_back({.role = Buffer::Role::scratch, .name = "s", .bytes = 512, .offset = 1000});
  });
  refused("16-bit", [&](Program& p) { map(p).dtype = DType::f32; });
  refused("impossible matrix", [&](Program& p) { map(p).rows = Count(-6, 1); });  // of 6 tokens
  refused("impossible matrix", [&](Program& p) { map(p).rows = huge; });
  refused("impossible matrix", [&](Program& p) { map(p).columns = 0; });
  refused("impossible matrix", [&](Program& p) { map(p).columns = 9; });
  refused("impossible matrix", [&](Program& p) { map(p).pitch = huge; });
  refused("impossible matrix", [&](Program& p) { map(p).pitch = -8; });
  refused("16 bytes", [&](Program& p) { map(p).pitch = 12; });
  refused("16 bytes", [&](Program& p) { map(p).offset = 8; });
  refused("16 bytes", [&](Program& p) { map(p).offset = Count(8, 8); });  // of many tokens
  refused("impossible boxes", [&](Program& p) { map(p).box_rows = 0; });
  refused("impossible boxes", [&](Program& p) { map(p).box_rows = 257; });
  refused("impossible boxes", [&](Program& p) { map(p).box_panels = 0; });
  refused("inside values", [&](Program& p) { map(p).offset = -16; });
  refused("inside values", [&](Program& p) { map(p).offset = huge; });
  refused("inside values", [&](Program& p) { map(p).offset = 400; });  // 7 rows and 5 elements: 122
  refused("inside values", [&](Program& p) { map(p).rows = Count(0, 4); });
  refused("inside values",
          [&](Program& p) { map(p).rows = 0x7fffffff, map(p).pitch = 0x7ffffff8; });
  Program fits = tiny();
  map(fits).offset = 384;
  CHECK_NOTHROW(verify(fits, "program.json"));
}

TEST_CASE("no cut, swapped or missing value of a program.json does harm") {
  const Json whole = to_json(tiny());
  const Json instead[] = {Json(nullptr), Json(-1),        Json(0),          Json(1.5),
                          Json(""),      Json::array(),   Json::object(),   Json(1e300),
                          Json(true),    Json(INT64_MAX), Json(UINT64_MAX), Json(INT64_MIN),
                          Json("zz"),    Json("weight"),  Json::array({1})};
  Json copy = whole;
  std::size_t count = 0;
  visit(copy, [&](Json&) { ++count; });
  CHECK(count > 150);
  int read_anyway = 0;
  for (std::size_t at = 0; at < count; ++at)
    for (const Json& value : instead) {
      Json harmed = whole;
      std::size_t i = 0;
      Json* place = nullptr;
      visit(harmed, [&](Json& json) {
        if (i++ == at) place = &json;
      });
      *place = value;
      try {
        const Program program = read(harmed);
        CHECK_NOTHROW(verify(program, "again"));
        ++read_anyway;
      } catch (const Error& error) {
        CHECK(error.fault() == Fault::bad_input);
      }
    }
  CHECK(read_anyway > 0);  // names, say
  CHECK(read_anyway < static_cast<int>(count));

  // Every field must be there.
  for (std::size_t at = 0; at < count; ++at) {
    Json harmed = whole;
    std::size_t i = 0;
    Json* place = nullptr;
    visit(harmed, [&](Json& json) {
      if (i++ == at) place = &json;
    });
    if (!place->is_object() || place->empty()) continue;
    const std::string first = place->begin().key();
    place->erase(place->begin());
    CAPTURE(first);
    CHECK_BAD_INPUT(read(harmed), "program.json");
  }
  const std::string text = whole.dump();
  for (std::size_t size = 0; size < text.size(); size += 7)
    CHECK_BAD_INPUT(read(parse_json(text.substr(0, size), "cut")), "cut");
}

namespace {

// A program of launches that use scratch buffers at random.
Program random_program(std::mt19937& random) {
  const auto any = [&](std::size_t below) { return random() % below; };
  Program program = tiny();
  program.phases = {named(program, "prefill"), named(program, "decode")};
  for (Phase& phase : program.phases) phase.draw.clear(), phase.masked.clear();
  const std::size_t count = 1 + any(24);
  program.buffers.resize(1);
  for (std::size_t i = 0; i < count; ++i) {
    Buffer buffer{.role = Buffer::Role::scratch, .name = "s"};
    buffer.bytes = Count(static_cast<std::int64_t>(any(3000)), static_cast<std::int64_t>(any(300)));
    program.buffers.push_back(buffer);
  }
  // A buffer belongs to one phase.
  const std::size_t half = 1 + count / 2;
  const auto fill = [&](Phase& phase, std::size_t begin, std::size_t end) {
    phase.launches.resize(any(12));
    for (Launch& launch : phase.launches) {
      launch.pointers = {{0, 0, 0}}, launch.maps.clear();
      for (std::size_t i = any(4); i > 0 && begin < end; --i)
        if (const auto used = static_cast<std::int32_t>(begin + any(end - begin)); any(4) > 0)
          launch.pointers.push_back({0, used, 0});
        else
          launch.maps.push_back({.buffer = used});
    }
    phase.logits = begin < end ? static_cast<std::int32_t>(begin + any(end - begin)) : -1;
  };
  fill(program.phases[0], 1, half);
  fill(program.phases[1], half, count + 1);
  return program;
}

struct Use {
  std::size_t first, last;
  std::int64_t begin, end;
};

std::vector<Use> uses_of(const Program& program, const Phase& phase) {
  std::map<std::int32_t, Use> uses;
  const auto use = [&](std::int32_t index, std::size_t at) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(index)];
    if (buffer.role != Buffer::Role::scratch) return;
    const std::int64_t bytes = buffer.bytes.at(phase.max_tokens);
    uses.emplace(index, Use{at, at, buffer.offset, buffer.offset + bytes}).first->second.last = at;
  };
  for (std::size_t i = 0; i < phase.launches.size(); ++i) {
    for (const Launch::Pointer& pointer : phase.launches[i].pointers) use(pointer.buffer, i);
    for (const Launch::Map& map : phase.launches[i].maps) use(map.buffer, i);
  }
  if (phase.logits >= 0) use(phase.logits, phase.launches.size());
  std::vector<Use> list;
  for (const auto& [index, found] : uses) list.push_back(found);
  return list;
}

}  // namespace

TEST_CASE("buffers that are alive at once do not meet in the arena") {
  std::mt19937 random(7);
  bool reuses = false;
  for (int round = 0; round < 500; ++round) {
    Program program = random_program(random);
    plan_memory(program);
    for (const Phase& phase : program.phases) {
      const std::vector<Use> uses = uses_of(program, phase);
      for (const Use& a : uses) {
        CHECK(a.begin >= 0);
        CHECK(a.begin % 256 == 0);
        CHECK(a.end <= program.arena_bytes);
        for (const Use& b : uses) {
          if (&a == &b) continue;
          const bool together = a.first <= b.last && b.first <= a.last;
          const bool meet = a.begin < b.end && b.begin < a.end;
          CHECK_FALSE((together && meet));
          reuses = reuses || meet;
        }
      }
      // Nothing can do with less than what is alive at one launch, and no more than all is needed.
      for (std::size_t at = 0; at <= phase.launches.size(); ++at) {
        std::int64_t alive = 0;
        for (const Use& use : uses)
          if (use.first <= at && at <= use.last) alive += use.end - use.begin;
        CHECK(program.arena_bytes >= alive);
      }
    }
  }
  CHECK(reuses);
}

TEST_CASE("a table of cosines and sines") {
  const std::vector<float> table = rope_table({1.0F, 0.25F}, 2.0, 3);
  REQUIRE(table.size() == 12);
  CHECK(table[0] == 2.0F);
  CHECK(table[1] == 0.0F);
  CHECK(table[8] == doctest::Approx(2 * std::cos(2.0)));
  CHECK(table[11] == doctest::Approx(2 * std::sin(0.5)));
}
