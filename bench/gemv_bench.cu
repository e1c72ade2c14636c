// Measures the decode GEMV family on this GPU and prints JSON lines:
//   limit  what a streaming read of several GB reaches, before, between and after the rest
//   gemv   each plan for each matrix of three models: cold L2, checked against a plain kernel
//   chain  all GEMVs of one decode step in a CUDA graph with programmatic dependent launch
//   step   the same with attention at several contexts
// Usage: gemv_bench [seconds that all of it may take]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/machine.cuh"

namespace ac::bench {
namespace {

struct Bench : Machine {
  bool legal(const Model& m, int site, int plan) const {
    return kernels[site][plan] != nullptr &&
           plans[plan].why_illegal(ops[site], shape_of(m, site).k, max_shared) == nullptr;
  }

  // `weights` holds the matrix, gate and up rows in turn.
  GemvParams params(const Model& m, int site, const f16* weights, bool in_place,
                    bool after_attention = false) const {
    const Shape s = shape_of(m, site);
    GemvParams p{};
    p.matrix[0] = {weights, nullptr, nullptr, s.n};
    p.matrix[1] = {weights + s.k, nullptr, nullptr, s.n};
    p.k = s.k;
    p.pitch = s.k * ops[site].row_sets();
    p.norm_weight = norm_weight;
    p.norm_eps = 1e-6f;
    p.scale = 1;
    p.block_best = block_best, p.finished_blocks = finished_blocks, p.best_row = best_row;
    p.x = site == o      ? (in_place && !after_attention ? query : attention)
          : site == down ? activation
                         : hidden[0];
    void* y = site == qkv    ? query
              : site == head ? static_cast<void*>(logits)
                             : hidden[in_place ? 0 : 1];
    // A sweep must not change its own x.
    if (site == gate_up) y = in_place ? activation : query;
    p.matrix[0].y = y;
    p.residual = hidden[0];
    return p;
  }

  void launch(const Model& m, int site, int plan, const GemvParams& p, bool dependent) const {
    const Shape s = shape_of(m, site);
    enqueue(kernels[site][plan], dim3(plans[plan].grid(ops[site], s.n, sms)), plans[plan].threads,
            plans[plan].shared_bytes(ops[site], s.k), p, dependent);
  }

  double check(const Model& m, int site, int plan) {
    const Shape s = shape_of(m, site);
    const GemvParams p = params(m, site, arena, false);
    const Type type = ops[site].y;
    CHECK_CUDA(cudaMemsetAsync(p.matrix[0].y, 0xff, size_t(s.n) * bytes_of(type), stream));
    CHECK_CUDA(cudaMemsetAsync(worst, 0, sizeof *worst, stream));
    launch(m, site, plan, p, true);
    largest_error<<<sms, 256, 0, stream>>>(p.matrix[0].y, type, reference, s.n, worst);
    unsigned bits = 0;
    CHECK_CUDA(cudaMemcpyAsync(&bits, worst, sizeof bits, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    float error = 0;
    std::memcpy(&error, &bits, sizeof error);
    return error;
  }

  // Times every plan for one matrix; returns the plans from fastest to slowest.
  std::vector<int> sweep(const Model& m, int site) {
    const Shape s = shape_of(m, site);
    const size_t bytes = s.elements * sizeof(f16);
    const int copies = static_cast<int>(
        std::max<size_t>(2, std::min<size_t>(arena_elements / s.elements, 400000000 / bytes)));
    reset();
    reference_gemv<<<(s.n + 7) / 8, 256, 0, stream>>>(params(m, site, arena, false), ops[site],
                                                      reference);
    std::vector<std::pair<double, int>> order;
    for (int plan = 0; plan < plan_count; ++plan) {
      if (!legal(m, site, plan)) continue;
      const double error = check(m, site, plan);
      const double ms = time_graph(
          [&] {
            for (int i = 0; i < copies; ++i)
              launch(m, site, plan, params(m, site, arena + i * s.elements, false), true);
          },
          3, 2);
      const double us = ms * 1e3 / copies, rate = bytes / (us * 1e-6);
      std::printf(
          "{\"gemv\": \"%s\", \"site\": \"%s\", \"n\": %d, \"k\": %d, \"mb\": %.1f, \"plan\": "
          "\"%s\", \"us\": %.2f, \"gb_s\": %.0f, \"share\": %.3f, \"error\": %.1e%s}\n",
          m.name, site_names[site], s.n, s.k, bytes / 1e6, plan_name(plans[plan]).c_str(), us,
          rate / 1e9, rate / limit, error, error < 4e-3 ? "" : ", \"wrong\": true");
      if (error < 4e-3) order.push_back({us, plan});
    }
    std::sort(order.begin(), order.end());
    std::vector<int> result;
    for (auto [us, plan] : order) result.push_back(plan);
    return result;
  }

  struct Choice {
    int plan[site_count];
  };

  double time_chain(const Model& m, const Choice& choice, bool dependent, int rounds = 3) {
    reset();
    return time_graph(
        [&] {
          const f16* weights = arena;
          for (int layer = 0; layer < m.layers; ++layer)
            for (int site = qkv; site <= down; ++site) {
              launch(m, site, choice.plan[site], params(m, site, weights, true), dependent);
              weights += shape_of(m, site).elements;
            }
          launch(m, head, choice.plan[head], params(m, head, weights, true), dependent);
        },
        rounds, 4);
  }

  void report_chain(const Model& m, const char* what, const Choice& choice, double ms) const {
    const double bytes =
        2.0 * (double(layer_elements(m)) * m.layers + double(shape_of(m, head).elements));
    std::printf(
        "{\"chain\": \"%s\", \"what\": \"%s\", \"ms\": %.4f, \"gb_s\": %.0f, \"share\": %.3f",
        m.name, what, ms, bytes / ms / 1e6, bytes / (ms * 1e-3) / limit);
    for (int site = 0; site < site_count; ++site)
      std::printf(", \"%s\": \"%s\"", site_names[site],
                  plan_name(plans[choice.plan[site]]).c_str());
    std::printf("}\n");
  }

  void run(const Model& m, double budget) {
    const double stop_at = seconds() + 0.5 * budget;
    std::vector<int> order[site_count];
    Choice isolated{};
    for (int site = 0; site < site_count; ++site) {
      order[site] = sweep(m, site);
      if (order[site].empty()) {
        std::printf("{\"error\": \"no plan is right for %s\"}\n", site_names[site]);
        return;
      }
      isolated.plan[site] = order[site][0];
    }

    // One plan for every matrix: which kinds of ring chain well?
    Choice best = isolated;
    double best_ms = time_chain(m, isolated, true);
    report_chain(m, "isolated winners", isolated, best_ms);
    for (int plan = 0; plan < plan_count && seconds() < stop_at; ++plan) {
      Choice uniform;
      bool all = true;
      for (int site = 0; site < site_count; ++site) {
        // A pair needs two rows: take the nearest plan that is legal.
        uniform.plan[site] = legal(m, site, plan) ? plan : isolated.plan[site];
        if (site != gate_up && !legal(m, site, plan)) all = false;
      }
      if (!all) continue;
      const double ms = time_chain(m, uniform, true);
      report_chain(m, "one plan", uniform, ms);
      if (ms < best_ms) best_ms = ms, best = uniform;
    }

    // Coordinate descent in the whole chain, from the best so far.
    for (int pass = 0; pass < 2; ++pass)
      for (int site : {gate_up, down, head, qkv, o}) {
        const size_t tries = std::min<size_t>(order[site].size(), pass == 0 ? 24 : 12);
        for (size_t i = 0; i < tries && seconds() < stop_at; ++i) {
          Choice other = best;
          other.plan[site] = order[site][i];
          if (other.plan[site] == best.plan[site]) continue;
          double ms = time_chain(m, other, true, 2);
          if (ms < best_ms * 0.999) ms = time_chain(m, other, true, 4);
          if (ms < best_ms * 0.999) best_ms = ms, best = other;
        }
      }
    report_chain(m, "tuned in the chain", best, time_chain(m, best, true, 6));
    report_chain(m, "tuned, no dependent launch", best, time_chain(m, best, false));
    Choice plain{};
    report_chain(m, "plain plan, no dependent launch", plain, time_chain(m, plain, false));

    sweep_attention(m);
    tune_step(m, best, order, seconds() + 0.5 * budget);
  }

  // ---- the step with attention

  struct Step {
    Choice gemv;
    int attention = 1;
  };

  AttentionParams attention_params(const Model& m, int layer) const {
    const size_t layer_kv = size_t(m.kv_heads) * m.head_dim * capacity;
    AttentionParams p{};
    p.q = query;
    p.k = query + m.heads * m.head_dim;
    p.v = query + (m.heads + m.kv_heads) * m.head_dim;
    p.q_norm = p.k_norm = norm_weight;
    p.norm_eps = 1e-6f;
    p.rope = rope;
    p.rope_pitch = m.head_dim;
    p.position = position;
    p.position_lag = 64;
    p.k_cache = kv + 2 * layer * layer_kv;
    p.v_cache = kv + (2 * layer + 1) * layer_kv;
    p.capacity = capacity;
    p.scale = 1 / std::sqrt(float(m.head_dim));
    p.out = attention;
    p.partial = partial, p.finished = finished_heads;
    return p;
  }

  void launch_attention(const Model& m, int plan, const AttentionParams& p, bool dependent) const {
    const auto model = &m - models;
    const AttentionPlan& a = attention_plans[plan];
    enqueue(attention_kernels[model][plan], dim3(m.kv_heads, a.splits), a.threads,
            a.shared_bytes(attention_ops[model]), p, dependent);
  }

  void set_position(int context) const {
    CHECK_CUDA(cudaMemcpyAsync(position, &context, sizeof context, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }

  static std::string attention_name(int plan) {
    const AttentionPlan& a = attention_plans[plan];
    return std::to_string(a.threads) + "x" + std::to_string(a.splits) + "/min" +
           std::to_string(a.min_tiles) + (a.tile == Tile::scalar ? "/scalar" : "");
  }

  // Each attention plan alone, over all layers, against the scalar one.
  void sweep_attention(const Model& m) {
    const size_t n = size_t(m.heads) * m.head_dim;
    reset();
    std::vector<f16> expected(n), got(n);
    for (int context : contexts) {
      set_position(context);
      for (int plan = 0; plan < attention_plan_count; ++plan) {
        std::vector<f16>& result = plan == 0 ? expected : got;
        CHECK_CUDA(cudaMemsetAsync(attention, 0xff, n * sizeof(f16), stream));
        launch_attention(m, plan, attention_params(m, 0), true);
        CHECK_CUDA(cudaMemcpyAsync(result.data(), attention, n * sizeof(f16),
                                   cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        if (plan == 0) continue;
        double error = 0, largest = 0;
        for (size_t i = 0; i < n; ++i) {
          largest = std::max(largest, std::fabs(host_float(expected[i])));
          const double d = std::fabs(host_float(got[i]) - host_float(expected[i]));
          error = std::max(error, d < 1e6 ? d : 1e6);
        }
        error /= largest;
        const double us = time_graph(
                              [&] {
                                for (int layer = 0; layer < m.layers; ++layer)
                                  launch_attention(m, plan, attention_params(m, layer), true);
                              },
                              3, 2) *
                          1e3 / m.layers;
        const double bytes = 4.0 * context * m.kv_heads * m.head_dim;
        std::printf(
            "{\"attention\": \"%s\", \"context\": %d, \"plan\": \"%s\", \"us\": %.2f, "
            "\"gb_s\": %.0f, \"error\": %.1e%s}\n",
            m.name, context, attention_name(plan).c_str(), us, bytes / us / 1e3, error,
            error < 1e-2 ? "" : ", \"wrong\": true");
      }
    }
  }

  void enqueue_step(const Model& m, const Step& step, bool dependent) const {
    const f16* weights = arena;
    for (int layer = 0; layer < m.layers; ++layer)
      for (int site = qkv; site <= down; ++site) {
        launch(m, site, step.gemv.plan[site], params(m, site, weights, true, true), dependent);
        weights += shape_of(m, site).elements;
        if (site != qkv) continue;
        launch_attention(m, step.attention, attention_params(m, layer), dependent);
      }
    launch(m, head, step.gemv.plan[head], params(m, head, weights, true, true), dependent);
  }

  // Milliseconds at each context, with one graph for all.
  std::vector<double> time_step(const Model& m, const Step& step, bool dependent, int rounds) {
    const Graph graph(stream, [&] { enqueue_step(m, step, dependent); });
    std::vector<double> ms;
    for (int context : contexts) {
      set_position(context);
      reset();
      ms.push_back(time_replays(graph, rounds, 4));
    }
    return ms;
  }

  double step_bytes(const Model& m, int context) const {
    return 2.0 * (double(layer_elements(m)) * m.layers + double(shape_of(m, head).elements)) +
           4.0 * context * m.layers * m.kv_heads * m.head_dim;
  }

  void report_step(const Model& m, const char* what, const Step& step, bool dependent = true) {
    const std::vector<double> times = time_step(m, step, dependent, 4);
    for (size_t i = 0; i < times.size(); ++i) {
      const int context = contexts[i];
      const double ms = times[i];
      std::printf(
          "{\"step\": \"%s\", \"what\": \"%s\", \"context\": %d, \"ms\": %.4f, \"share\": "
          "%.3f, \"attention\": \"%s\"",
          m.name, what, context, ms, step_bytes(m, context) / (ms * 1e-3) / limit,
          attention_name(step.attention).c_str());
      for (int site = 0; site < site_count; ++site)
        std::printf(", \"%s\": \"%s\"", site_names[site],
                    plan_name(plans[step.gemv.plan[site]]).c_str());
      std::printf("}\n");
    }
  }

  // Coordinate descent on the mean time over the limit's, over all contexts.
  void tune_step(const Model& m, const Choice& chain, const std::vector<int> (&order)[site_count],
                 double stop_at) {
    const auto cost = [&](const Step& step, int rounds) {
      double sum = 0;
      const std::vector<double> ms = time_step(m, step, true, rounds);
      for (size_t i = 0; i < ms.size(); ++i)
        sum += ms[i] * 1e-3 * limit / step_bytes(m, contexts[i]);
      return sum / ms.size();
    };
    Step best{chain};
    double best_cost = cost(best, 2);
    report_step(m, "chain's plans", best);
    const auto descend = [&](Step& from, double& from_cost, std::initializer_list<int> sites,
                             size_t tries, double until) {
      const auto attempt = [&](const Step& step) {
        if (seconds() > until) return;
        double c = cost(step, 2);
        if (c < from_cost * 0.999) c = cost(step, 3);
        if (c < from_cost * 0.999) from_cost = c, from = step;
      };
      for (int site : sites)
        for (size_t i = 0; i < std::min(order[site].size(), tries); ++i) {
          Step step = from;
          step.gemv.plan[site] = order[site][i];
          attempt(step);
        }
      for (int plan = 1; plan < attention_plan_count && sites.size() > 2; ++plan) {
        Step step = from;
        step.attention = plan;
        attempt(step);
      }
    };
    // Attention and its neighbours share the SMs, so they are chosen together: from each of the
    // most promising attention plans.
    std::vector<std::pair<double, int>> starts;
    for (int plan = 1; plan < attention_plan_count; ++plan) {
      Step step = best;
      step.attention = plan;
      starts.push_back({cost(step, 1), plan});
    }
    std::sort(starts.begin(), starts.end());
    starts.resize(5);
    const double joint_seconds = 0.8 * (stop_at - seconds()) / 5;
    for (auto [start_cost, plan] : starts) {
      Step step{chain};
      step.attention = plan;
      descend(step, start_cost, {o, qkv}, plan_count, seconds() + joint_seconds);
      if (start_cost < best_cost) best_cost = start_cost, best = step;
    }
    for (int pass = 0; pass < 2; ++pass)
      descend(best, best_cost, {gate_up, down, head, o, qkv}, 24, stop_at);
    report_step(m, "tuned", best);
    report_step(m, "tuned, no dependent launch", best, false);
  }
};

}  // namespace
}  // namespace ac::bench

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const double budget = argc > 1 ? std::atof(argv[1]) : 58;
  static ac::bench::Bench bench;
  bench.set_up();
  bench.measure_limit("before");
  int left = 3;
  for (const auto& model : ac::bench::models) {
    bench.run(model, (budget - bench.seconds()) / left--);
    bench.measure_limit(model.name);
  }
  std::printf("{\"seconds\": %.1f}\n", bench.seconds());
}
