#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "ir/assumptions.h"
#include "kernels/row_codes.h"
#include "reference/ops_internal.h"
#include "reference/parallel.h"
#include "state/state.h"

namespace ac {
namespace {

// What a score may be where the graph assumes it: that the model's mask hides.
struct Assumed {
  double within = std::numeric_limits<double>::infinity();
  std::vector<double> largest;  // of each query, at each head

  explicit Assumed(const Node& node, std::int64_t units) {
    if (!node.has(kScoresWithin)) return;
    within = node.number(kScoresWithin);
    largest.resize(static_cast<std::size_t>(units));
  }
  bool any() const { return !largest.empty(); }

  void check(const Call& call) const {
    if (!any()) return;
    const double most = *std::max_element(largest.begin(), largest.end());
    if (call.scores) call.scores->add(most, within);
    if (most > within)
      bad_input(
          "{}: an attention score of magnitude {:.6g}: {}; let the model hide with -inf or "
          "torch.finfo(dtype).min",
          call.where(), most, what_is_assumed(call.node()));
  }
};

// Queries of the tokens past .. past+n-1 over the keys and values of all tokens up to there.
Value attend(const Call& call, const std::vector<double>& keys, const std::vector<double>& values,
             std::int64_t past) {
  const Node& node = call.node();
  const Value& q = call[0];
  const double scale = node.number("scale"), softcap = node.number("softcap");
  const std::int64_t window = node.integer("window");
  const std::int64_t tokens = q.shape[0], heads = q.shape[1], key_size = q.shape[2];
  const std::int64_t kv_heads = call[1].shape[1], value_size = call[2].shape[2];
  Value result = call.result();
  const auto singles = [&](const std::vector<double>& numbers) {
    std::vector<float> all(call.arithmetic != Arithmetic::exact ? numbers.size() : 0);
    narrow(numbers.data(), static_cast<std::int64_t>(all.size()), all.data());
    return all;
  };
  const std::vector<float> single_keys = singles(keys), single_q = singles(q.data);
  Assumed assumed(node, tokens * heads);

  parallel_for(
      call.threads, tokens * heads, 1 + (1 << 14) / (1 + (past + tokens) * key_size),
      [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> scores;
        for (std::int64_t unit = begin; unit < end; ++unit) {
          const std::int64_t head = unit % heads, kv_head = head / (heads / kv_heads);
          const std::int64_t token = past + unit / heads;
          const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, token - window + 1) : 0;
          // Scores of `count` tokens, the first of them `from`.
          const auto score = [&](std::int64_t from, std::int64_t count) {
            scores.resize(static_cast<std::size_t>(count));
            const auto seen = [&]<class Number>(const std::vector<Number>& all) {
              return Matrix<Number>{all.data() + (from * kv_heads + kv_head) * key_size, count,
                                    key_size, kv_heads * key_size};
            };
            if (call.arithmetic != Arithmetic::exact)
              dots(seen(single_keys), single_q.data() + unit * key_size, scores.data(), 1);
            else
              dots(seen(keys), q.data.data() + unit * key_size, scores.data(), 1);
            for (double& score : scores) {
              score = call.in_float(scale * score);
              if (softcap > 0) score = call.in_float(softcap * std::tanh(score / softcap));
            }
          };
          if (assumed.any()) {  // of all tokens that are there: a mask is added to hidden scores
            score(0, past + tokens);
            double& most = assumed.largest[static_cast<std::size_t>(unit)];
            for (const double score : scores) most = std::max(most, std::fabs(score));
          }
          score(first, token + 1 - first);
          const double largest = *std::max_element(scores.begin(), scores.end());
          double total = 0;
          for (double& score : scores)
            total += score = call.in_float(std::exp(call.in_float(score - largest)));
          double* out = result.data.data() + unit * value_size;
          for (std::int64_t other = first; other <= token; ++other) {
            const double* value = values.data() + (other * kv_heads + kv_head) * value_size;
            double share = scores[static_cast<std::size_t>(other - first)] / total;
            // The shares are a tensor of their own where attention is made of plain products.
            if (call.arithmetic != Arithmetic::exact)
              share = round_by_float(node.type.dtype, share);
            add_scaled(call.arithmetic, out, share, value, value_size);
          }
        }
      });
  assumed.check(call);
  return result;
}

// Appends rows as codes: numbers of up to 448 that are still to be rounded, and what they are
// multiplied with. The scale of a row with a NaN is NaN.
void append_codes(const Call& call, const Value& x, std::vector<double>& codes,
                  std::vector<double>& scales) {
  const auto size = static_cast<std::size_t>(x.shape.back());
  for (std::size_t at = 0; at < x.data.size(); at += size) {
    double largest = 0;
    for (std::size_t i = at; i < at + size && !std::isnan(largest); ++i)
      if (!(std::fabs(x.data[i]) <= largest)) largest = std::fabs(x.data[i]);
    const double scale = largest / double{kernels::most_e4m3}, least = kernels::least_row_scale;
    scales.push_back(call.in_float(scale < least ? least : scale));
    for (std::size_t i = at; i < at + size; ++i)
      codes.push_back(call.in_float(x.data[i] / scales.back()));
  }
}

// What codes mean: of `appended`, for the last tokens, where it is given.
std::vector<double> read_codes(const Call& call, std::size_t of_codes, std::size_t of_scales) {
  std::vector<double> codes = call.state->at(of_codes), scales = call.state->at(of_scales);
  if (call.appended) {
    const auto put = [](const std::vector<double>& last, std::vector<double>& all) {
      AC_ASSERT(last.size() <= all.size());
      std::ranges::copy(last, all.end() - std::ssize(last));
    };
    put(call.appended->at(of_codes), codes), put(call.appended->at(of_scales), scales);
  }
  if (scales.empty()) return codes;
  const std::size_t size = codes.size() / scales.size();
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = round_to(DType::f8e4m3, codes[i]) * scales[i / size];
  return codes;
}

}  // namespace

Value attention(const Call& call) { return attend(call, call[1].data, call[2].data, 0); }

Value append_attend(const Call& call) {
  // The verifier cannot say that a size is T: in an instance of a step it is a number.
  if (call[1].shape[0] != call.bindings.T)
    bad_input("{}: appends {} tokens in a step of {}", call.where(), call[1].shape[0],
              call.bindings.T);
  std::vector<double>&keys = call.state->at(kKeys), &values = call.state->at(kValues);
  if (call.state->size() > kKeyScales) {
    append_codes(call, call[1], keys, call.state->at(kKeyScales));
    append_codes(call, call[2], values, call.state->at(kValueScales));
    return attend(call, read_codes(call, kKeys, kKeyScales),
                  read_codes(call, kValues, kValueScales), call.bindings.P);
  }
  keys.insert(keys.end(), call[1].data.begin(), call[1].data.end());
  values.insert(values.end(), call[2].data.begin(), call[2].data.end());
  return attend(call, keys, values, call.bindings.P);
}

Value rope(const Call& call) {
  const Value &x = call[0], &positions = call[1], &frequencies = call[2];
  const double scale = call.node().number("scale");
  const bool interleaved = call.node().flag("interleaved");
  const std::size_t size = static_cast<std::size_t>(x.shape.back()),
                    pairs = frequencies.data.size();
  Value result = x;
  if (x.data.empty()) return result;
  const std::size_t token_size = x.data.size() / positions.data.size();
  for (std::size_t at = 0; at < x.data.size(); at += size) {
    const double position = positions.data[at / token_size];
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t a = at + (interleaved ? 2 * i : i);
      const std::size_t b = at + (interleaved ? 2 * i + 1 : i + pairs);
      const double angle = call.in_float(position * frequencies.data[i]);
      const double c = std::cos(angle) * scale, s = std::sin(angle) * scale;
      result.data[a] = x.data[a] * c - x.data[b] * s;
      result.data[b] = x.data[b] * c + x.data[a] * s;
    }
  }
  return result;
}

}  // namespace ac
