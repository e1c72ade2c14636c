// The trial of what chooses under a mask: the kernel passes it, and with faults planted in it, it
// does not.
#include <doctest/doctest.h>

#include "admit/trials.h"
#include "tests/unit/court.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

TEST_CASE("mask trial: what is right is admitted, for every type and size") {
  Court court("kernels/mask_logits.cuh");
  for (const DType logits : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t vocab : {2, 31, 77, 300, 151'936})
      for (const Request& request : confirmation_of_mask(logits, vocab)) {
        if (request.trial.purpose == Purpose::races) continue;
        CAPTURE(vocab);
        Request read = trial_of_mask(logits, vocab);
        read.trial = trial_from_json(to_json(read.trial), "trial");
        CHECK(to_json(read.trial) == to_json(trial_of_mask(logits, vocab).trial));
        CHECK(court.judge(read) == "");  // as it comes to the process that judges
        CHECK(court.judge(request) == "");
      }
}

TEST_CASE("mask trial: planted faults are not admitted") {
  Court court("kernels/mask_logits.cuh");
  const Request request = trial_of_mask(DType::f32, 151'936);
  const auto rejects = [&](const std::string& from, const std::string& to) {
    CAPTURE(to);
    CHECK_FALSE(court.admits(request, 0, from, to));
  };
  // The order of bits, in a thread's tokens, a word and the mask.
  rejects("bits >> e & 1", "bits >> (n - 1 - e) & 1");
  rejects(">> first % mask_word", ">> (mask_word - n - first % mask_word)");
  rejects("first / mask_word)", "first / mask_word / 2 * 2)");
  rejects("first / mask_word)", "(first < mask_word ? 0 : first / mask_word - 1))");
  rejects("bits >> e & 1", "~bits >> e & 1");
  // The end of the vocabulary.
  rejects("if (first + e >= p.vocab) continue;", "if (first + e >= p.vocab - 1) continue;");
  rejects("if (first < p.vocab) bits", "if (first + n < p.vocab) bits");
  rejects("p.vocab - first, v);\n  combine", "p.vocab - 1 - first, v);\n  combine");
  // What is left of the logits, and the choice.
  rejects("if (!is_allowed) v[e] = __uint_as_float(0xff800000u);", "");
  rejects("__uint_as_float(0xff800000u)", "-3.4028234e38f");
  rejects("0xff800000u", "0x7fc00000u");
  rejects("if (!is_allowed) v[e]",
          "v[e] = __uint_as_float(__float_as_uint(v[e]) ^ 1);\n"
          "    if (!is_allowed) v[e]");
  rejects("is_allowed || is_bad", "true");
  rejects("is_allowed || is_bad", "is_allowed");
  rejects("logit_key(v[e], first + e)", "argmax_key(v[e], first + e)");
  rejects("key > best ? key : best", "key");
}

TEST_CASE("mask trial: a kernel that chooses from other words than it has is not admitted") {
  Court court("kernels/mask_logits.cuh");
  Request request = trial_of_mask(DType::f16, 3000);
  request.trial.launches[0].grid[0] = 2;  // of 3 blocks
  CHECK(court.judge(request) != "");
  request = trial_of_mask(DType::f16, 3000);
  request.trial.launches.push_back(request.trial.launches[0]);
  CHECK(court.judge(request) == "");  // once more changes nothing
}

TEST_CASE("mask trial: files that make no sense are refused") {
  const Request request = trial_of_mask(DType::f16, 3000);
  const auto refused = [&](const char* part, const std::function<void(Trial&)>& harm) {
    Trial trial = request.trial;
    harm(trial);
    CHECK_BAD_INPUT(verify(trial, "plan.json"), "plan.json", part);
  };
  refused("a mask of nothing", [](Trial& t) { t.vocab = 0, t.positions = {0}; });
  refused("of what is drawn", [](Trial& t) { t.draws = true; });
  refused("masks nothing", [](Trial& t) { t.masks = false; });
  refused("neither logits nor", [](Trial& t) { t.buffers[0].node = 2; });
}

}  // namespace
}  // namespace ac::test
