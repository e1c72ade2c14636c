#include "tests/unit/fallback_runner.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "analyze/analyse.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "device/host.h"
#include "generate/fallback.h"
#include "ir/layout.h"
#include "reference/executor.h"
#include "tests/unit/tensors.h"
#include "validate/buffers.h"

namespace ac::test {
namespace {

constexpr int kPoison = 0;
constexpr std::size_t kKernelsPerFile = 24;

// Memory of exactly the size, between canaries.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : all_(kMargin + bytes + kMargin), size_(bytes) {
    std::fill(all_.begin(), all_.end(), kCanary);
    validate::fill_poison({data(), bytes}, kPoison);
  }
  std::byte* data() { return all_.data() + kMargin; }
  bool intact() const {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if ((i < kMargin || i >= kMargin + size_) && all_[i] != kCanary) return false;
    return true;
  }

 private:
  static constexpr std::size_t kMargin = 64;
  static constexpr std::byte kCanary{0x5a};
  std::vector<std::byte> all_;
  std::size_t size_;
};

std::vector<std::byte> bytes_from(DType dtype, const std::vector<double>& data) {
  std::vector<std::byte> bytes(data.size() * bytes_of(dtype));
  for (std::size_t i = 0; i < data.size(); ++i)
    store_element(dtype, data[i], bytes.data() + i * bytes_of(dtype));
  return bytes;
}

struct Kernels {
  TemporaryFolder folder;
  std::map<std::string, HostKernel> by_name;

  explicit Kernels(const std::map<std::string, std::string>& sources) {
    std::vector<KernelSource> files;
    std::vector<std::vector<std::string>> entries;
    for (const auto& [entry, text] : sources) {
      if (files.empty() || entries.back().size() == kKernelsPerFile) {
        files.push_back({entry, ""});
        entries.emplace_back();
      }
      files.back().text += text;
      entries.back().push_back(entry);
    }
    BuilderOptions options = builder_options(read_environment());
    options.cache = folder.path(), options.jobs = 2;
#ifdef __SANITIZE_ADDRESS__
    options.checks = HostChecks::addresses;
#endif
    const std::vector<BuildResult> results = KernelBuilder(options).build_all(files, {});
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (const auto* failure = std::get_if<CompileFailure>(&results[i])) FAIL(failure->log);
      for (const std::string& entry : entries[i])
        by_name.emplace(entry, HostKernel(std::get<Artifact>(results[i]).file, entry));
    }
  }
};

// One trial, with its regions' implementations.
class Run {
 public:
  explicit Run(const Trial& trial)
      : trial_(trial), random_(static_cast<unsigned>(trial.step.graph.nodes.size())) {
    const Setting setting{.multiprocessors = trial.multiprocessors, .slots = trial.slots};
    const Regions regions = analyse(trial.step);
    for (const Region& region : regions.regions)
      implementations_.push_back(fallback(trial.step, region, setting));
  }

  void collect(std::map<std::string, std::string>& sources) const {
    for (const Generated& generated : implementations_)
      for (const KernelSource& source : generated.sources) sources[source.entry] = source.text;
  }

  std::string compare(const Kernels& kernels) {
    fill_leaves();
    prime_states();
    const std::int32_t position = static_cast<std::int32_t>(trial_.position);
    Memory& place = memory("position", 4);
    std::memcpy(place.data(), &position, 4);

    StepExecutor executor(
        trial_.step,
        [&](const Node& weight) {
          return WeightView{weight.type.dtype, sizes_of(weight.type.shape),
                            weights_.at(weight.text("key")).data()};
        },
        1, trial_.plain ? Arithmetic::plain : Arithmetic::exact);
    executor.prime(trial_.position, states_);
    const Values truth = executor.step(trial_.tokens, inputs_);

    for (const Generated& generated : implementations_)
      if (std::string error = launch(generated, kernels); !error.empty()) return error;
    for (auto& [name, buffer] : memory_)
      if (!buffer.intact()) return name + ": written outside";
    for (const ac::Output& output : trial_.step.graph.outputs)
      if (std::string error = compare(output, truth.at(output.name)); !error.empty()) return error;
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (std::string error = compare_state(i, executor.state(i)); !error.empty()) return error;
    return "";
  }

 private:
  const Graph& graph() const { return trial_.step.graph; }
  std::int64_t evaluate(const Dim& dim) const {
    return dim.evaluate({.T = trial_.tokens, .P = trial_.position});
  }
  Sizes sizes_of(const Shape& shape) const {
    Sizes sizes;
    for (const Dim& dim : shape) sizes.push_back(evaluate(dim));
    return sizes;
  }
  Memory& memory(const std::string& name, std::int64_t bytes) {
    return memory_.try_emplace(name, static_cast<std::size_t>(bytes)).first->second;
  }
  static std::string name_of(NodeId node) { return fmt::format("node {}", node); }

  std::vector<double> random_numbers(DType dtype, std::size_t count, double low, double high) {
    std::vector<double> data(count);
    std::uniform_real_distribution<double> number(low, high);
    std::uniform_int_distribution<std::int64_t> whole(static_cast<std::int64_t>(low),
                                                      static_cast<std::int64_t>(high));
    for (double& x : data)
      x = has_nan(dtype)
              ? round_to(dtype, number(random_))
              : static_cast<double>(dtype == DType::boolean ? whole(random_) & 1 : whole(random_));
    return data;
  }

  void fill_leaves() {
    for (std::size_t i = 0; i < graph().nodes.size(); ++i) {
      const Node& node = graph().nodes[i];
      const DType dtype = node.type.dtype;
      if (node.op != Op::input && node.op != Op::weight && node.op != Op::constant) continue;
      const Sizes sizes = sizes_of(node.type.shape);
      const auto count = static_cast<std::size_t>(element_count(sizes));
      double low = -1, high = 1;
      std::vector<double> data;
      if (node.op == Op::constant) {
        data = node.data();
        for (double& x : data) x = round_to(dtype, x);
      } else if (node.op == Op::input) {
        if (node.text("name") == "ids") low = 0, high = 39;
        std::sscanf(node.text("name").c_str(), "x%*d from %lf to %lf", &low, &high);
        data = random_numbers(dtype, count, low, std::isinf(high) ? 1 : high);
        if (std::isinf(high))
          for (std::size_t e = 0; e < count; ++e) data[e] = kernels::hostile(e);
        inputs_[node.text("name")] = {dtype, sizes, data};
      } else {
        auto& bytes = weights_[node.text("key")];
        if (bytes.empty()) bytes = bytes_from(dtype, random_numbers(dtype, count, low, high));
        for (std::size_t e = 0; e < count; ++e)
          data.push_back(load_element(dtype, bytes.data() + e * bytes_of(dtype)));
      }
      const std::vector<std::byte> bytes = bytes_from(dtype, data);
      std::copy(bytes.begin(), bytes.end(),
                memory(name_of(static_cast<NodeId>(i)), std::ssize(bytes)).data());
    }
  }

  // ---- states
  const StateSpec& spec(std::size_t i) const { return trial_.step.states[i]; }
  const StateTensor& tensor(std::size_t i, std::size_t t) const { return spec(i).tensors[t]; }
  std::string state_name(std::size_t i, std::size_t t) const {
    return fmt::format("state {} {}", i, tensor(i, t).name);
  }
  std::byte* slot(std::size_t i, std::size_t t, std::int64_t token, std::int64_t row) {
    const std::int64_t size = tensor(i, t).size, slots = trial_.slots[i];
    const auto bytes = static_cast<std::int64_t>(bytes_of(tensor(i, t).dtype));
    Memory& all = memory(state_name(i, t), tensor(i, t).rows * slots * size * bytes);
    return all.data() + (row * slots + token % slots) * size * bytes;
  }

  void prime_states() {
    for (std::size_t i = 0; i < trial_.step.states.size(); ++i) {
      StateData& state = states_.emplace_back();
      for (std::size_t t = 0; t < spec(i).tensors.size(); ++t) {
        const DType dtype = tensor(i, t).dtype;
        const auto size = static_cast<std::size_t>(tensor(i, t).size);
        const std::int64_t heads = tensor(i, t).rows, rows = trial_.position * heads;
        const auto [offset, scale] = random_of(spec(i), t);
        std::vector<double>& data = state.emplace_back(random_numbers(
            dtype, static_cast<std::size_t>(rows) * size, offset - scale, offset + scale));
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::size_t e = 0; e < size; ++e)
            store_element(dtype, data[static_cast<std::size_t>(row) * size + e],
                          slot(i, t, row / heads, row % heads) + e * bytes_of(dtype));
        slot(i, t, 0, 0);  // is there, if there is no token
      }
    }
  }

  std::string compare_state(std::size_t i, const StateData& state) {
    const std::int64_t tokens = trial_.position + trial_.tokens;
    for (std::size_t t = 0; t < spec(i).tensors.size(); ++t) {
      const DType dtype = tensor(i, t).dtype;
      const auto size = static_cast<std::size_t>(tensor(i, t).size);
      const std::int64_t rows = tensor(i, t).rows;
      for (std::int64_t token = std::max<std::int64_t>(0, tokens - trial_.slots[i]); token < tokens;
           ++token)
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::size_t e = 0; e < size; ++e) {
            const double want = state[t][static_cast<std::size_t>(token * rows + row) * size + e];
            const double got = load_element(dtype, slot(i, t, token, row) + e * bytes_of(dtype));
            if (!is_close(dtype, got, want))
              return fmt::format("{}: token {}, head {}, element {}: {} instead of {}",
                                 state_name(i, t), token, row, e, got, want);
          }
    }
    return "";
  }

  // ---- launches
  void* address(std::size_t region, const Buffer& buffer) {
    switch (buffer.role) {
      case Buffer::Role::state:
        return slot(static_cast<std::size_t>(buffer.state), static_cast<std::size_t>(buffer.tensor),
                    0, 0);
      case Buffer::Role::position:
        return memory("position", 4).data();
      case Buffer::Role::weight:
        for (std::size_t i = 0; i < graph().nodes.size(); ++i)
          if (graph().nodes[i].op == Op::weight && graph().nodes[i].text("key") == buffer.key)
            return value(static_cast<NodeId>(i));
        break;
      case Buffer::Role::ids:
        for (std::size_t i = 0; i < graph().nodes.size(); ++i)
          if (graph().nodes[i].op == Op::input && graph().nodes[i].text("name") == "ids")
            return value(static_cast<NodeId>(i));
        break;
      case Buffer::Role::constant:
        return value(buffer.node);
      case Buffer::Role::scratch:
        if (!buffer.is_workspace()) return value(buffer.node);
        return memory(fmt::format("workspace {}", region), buffer.bytes.at(trial_.tokens)).data();
      default:
        break;
    }
    FAIL("the fallback needs no such buffer");
    return nullptr;
  }

  void* value(NodeId id) {
    const TensorType& type = graph().type(id);
    REQUIRE(storage_of(graph(), id) == id);
    const std::int64_t elements = element_count(sizes_of(type.shape));
    return memory(name_of(id), elements * static_cast<std::int64_t>(bytes_of(type.dtype))).data();
  }

  std::string launch(const Generated& generated, const Kernels& kernels) {
    std::vector<void*> addresses;
    const auto region = static_cast<std::size_t>(&generated - implementations_.data());
    for (const Buffer& buffer : generated.buffers) addresses.push_back(address(region, buffer));
    for (const Launch& launch : generated.launches) {
      const auto grid = [&](int i) {
        return static_cast<unsigned>(launch.grid[static_cast<std::size_t>(i)].at(trial_.tokens));
      };
      kernels::HostLaunch on_host{.grid = {grid(0), grid(1), grid(2)},
                                  .schedule = kernels::Schedule::shuffled,
                                  .seed = launches_++};
      on_host.block.x = static_cast<unsigned>(launch.threads);
      on_host.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
      const std::string error =
          kernels.by_name.at(launch.kernel)
              .launch(on_host, bind_params(launch, trial_.tokens, addresses, encode_map_on_host))
              .error;
      if (!error.empty()) return error;
    }
    return "";
  }

  // ---- results
  bool is_close(DType dtype, double got, double want) const {
    if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
    if (!has_nan(dtype) || std::isinf(want)) return got == round_to(dtype, want);
    const double error = trial_.tolerance * std::max(1.0, std::fabs(want));
    return round_to(dtype, want - error) <= got && got <= round_to(dtype, want + error);
  }

  std::string compare(const ac::Output& output, const Value& want) {
    const NodeId storage = storage_of(graph(), output.node);
    const Layout layout = layout_of(graph(), output.node);
    const Sizes sizes = sizes_of(graph().type(output.node).shape),
                strides = sizes_of(layout.strides);
    const std::byte* const data = memory(name_of(storage), 0).data();
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      std::int64_t at = evaluate(layout.offset), rest = static_cast<std::int64_t>(i);
      for (std::size_t axis = sizes.size(); axis-- > 0; rest /= sizes[axis])
        at += rest % sizes[axis] * strides[axis];
      const double got =
          load_element(want.dtype, data + at * static_cast<std::int64_t>(bytes_of(want.dtype)));
      if (!is_close(want.dtype, got, want.data[i]))
        return fmt::format("{} ({}): element {} is {} instead of {}", output.name,
                           to_string(want.dtype, want.shape), i, got, want.data[i]);
    }
    return "";
  }

  const Trial& trial_;
  std::mt19937 random_;
  std::vector<Generated> implementations_;  // of the regions, in order
  std::map<std::string, Memory> memory_;
  Values inputs_;
  std::map<std::string, std::vector<std::byte>> weights_;
  std::vector<StateData> states_;
  unsigned launches_ = 1;
};

}  // namespace

std::vector<std::string> run_by_fallback(const std::vector<Trial>& trials) {
  std::vector<Run> runs;
  std::map<std::string, std::string> sources;
  for (const Trial& trial : trials) runs.emplace_back(trial).collect(sources);
  const Kernels kernels(sources);
  MESSAGE(sources.size() << " kernels for " << trials.size() << " steps");
  std::vector<std::string> errors;
  for (Run& run : runs) errors.push_back(run.compare(kernels));
  return errors;
}

void build_fallback_for_gpu(const std::vector<Trial>& trials) {
  std::map<std::string, std::string> sources;
  for (const Trial& trial : trials) Run(trial).collect(sources);
  KernelSource all{sources.begin()->first, ""};
  for (const auto& [entry, text] : sources) all.text += text;
  const TemporaryFolder folder;
  BuilderOptions options = builder_options(read_environment());
  options.cache = folder.path();
  KernelBuilder builder(options);
  const Target target{Target::cuda, "sm_90a"};
  try {
    builder.compiler(target);
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const BuildResult result = builder.build(all, target);
  if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
  MESSAGE(sources.size() << " kernels for a GPU: " << std::get<Artifact>(result).seconds << " s");
}

std::string input_name(int number, double low, double high) {
  return fmt::format("x{} from {} to {}", number, low, high);
}

}  // namespace ac::test
