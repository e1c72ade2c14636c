#include "measure/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/elements.h"
#include "base/error.h"
#include "measure/random_pool.h"

namespace ac {
namespace {

constexpr int kMaxCopies = 64;
constexpr double kColdFactor = 2.5;  // of the second-level cache
constexpr double kSlow = 0.02;       // seconds
constexpr double kFarBehind = 10;    // times the fastest

bool calls_library(const Generated& made) {
  return std::ranges::any_of(made.launches,
                             [](const Launch& launch) { return launch.product.has_value(); });
}

// The memory behind one storage: several copies where what is read must not be in a cache.
struct Buffers {
  std::vector<std::unique_ptr<Device::Memory>> copies;
  void* at(std::size_t i) const { return copies[i % copies.size()]->address(); }
};

class Bench {
 public:
  Bench(Device& device, const StepGraph& step, const MeasureOptions& options)
      : device_(device), step_(step), options_(options) {}

  struct Entry {
    const Contender* contender;
    std::vector<std::size_t> buffers;                      // of each storage
    std::vector<std::unique_ptr<Device::Kernel>> kernels;  // of each launch
    std::unique_ptr<Device::Recording> recording;
    double once = 0;  // seconds, about
    int repetitions = 1;
    bool is_done = false;
    Latency latency;
  };

  Entry prepare(const Contender& contender,
                const std::map<std::string, std::filesystem::path>& files) {
    Entry entry{&contender, {}, {}, nullptr, 0, 1, false, {}};
    for (const Storage& storage : contender.made.storages)
      entry.buffers.push_back(buffer_of(storage));
    for (const Launch& launch : contender.made.launches)
      entry.kernels.push_back(launch.product
                                  ? device_.load_product(*launch.product)
                                  : device_.load(files.at(launch.kernel), launch.kernel));
    return entry;
  }

  // As many repetitions as fill the time that a round shall take.
  void warm_up(Entry& entry) {
    const auto first = [&] { run(entry, 1); };
    if (options_.patience == 0) {
      first();
    } else if (const double seconds = device_.time(first); seconds > options_.patience) {
      entry.once = seconds, entry.is_done = true;
      entry.latency.samples.push_back(seconds * 1e6);
      return;
    }
    entry.once = std::max(device_.time([&] { run(entry, 1); }), 1e-7);
    entry.repetitions = static_cast<int>(
        std::clamp(options_.seconds / entry.once, 1.0, double(options_.repetitions)));
    entry.recording = device_.record([&] { run(entry, entry.repetitions); });
    if (entry.once < kSlow) entry.recording->replay();
  }

  void round(Entry& entry) {
    const double seconds = device_.time([&] { entry.recording->replay(); });
    entry.latency.samples.push_back(seconds / entry.repetitions * 1e6);
  }

 private:
  void run(Entry& entry, int repetitions) {
    for (int i = 0; i < repetitions; ++i) {
      std::vector<void*> addresses;
      for (const std::size_t buffer : entry.buffers)
        addresses.push_back(buffers_[buffer].at(static_cast<std::size_t>(i)));
      const std::vector<Launch>& launches = entry.contender->made.launches;
      for (std::size_t l = 0; l < launches.size(); ++l) {
        LaunchShape shape;
        for (std::size_t axis = 0; axis < 3; ++axis)
          shape.grid[axis] = static_cast<unsigned>(launches[l].grid[axis].at(options_.tokens));
        shape.threads = static_cast<unsigned>(launches[l].threads);
        shape.shared_bytes = static_cast<unsigned>(launches[l].shared_bytes);
        shape.overlaps = true;
        device_.launch(*entry.kernels[l], shape,
                       bind_params(launches[l], options_.tokens, addresses, device_.map_encoder()));
      }
    }
  }

  // Contenders share what they read and write; scratch is one's own.
  std::size_t buffer_of(const Storage& storage) {
    const bool own =
        storage.kind == Storage::Kind::workspace || storage.kind == Storage::Kind::counters;
    if (!own)
      for (std::size_t i = 0; i < known_.size(); ++i)
        if (known_[i] == storage) return i;
    known_.push_back(storage);
    buffers_.push_back(make(storage));
    return buffers_.size() - 1;
  }

  Buffers make(const Storage& storage) {
    const auto allocate = [&](std::int64_t bytes, int copies) {
      Buffers made;
      for (int i = 0; i < copies; ++i)
        made.copies.push_back(
            device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
      return made;
    };
    switch (storage.kind) {
      case Storage::Kind::value: {
        const Node& node = step_.graph[storage.node];
        const std::int64_t bytes =
            product(node.type.shape).evaluate({.T = options_.tokens, .P = options_.position}) *
            static_cast<std::int64_t>(bytes_of(node.type.dtype));
        Buffers made = allocate(bytes, node.op == Op::weight ? copies_for(bytes) : 1);
        fill(made, node);
        return made;
      }
      case Storage::Kind::keys:
      case Storage::Kind::values: {
        const CacheSpec& cache = options_.caches[static_cast<std::size_t>(storage.cache)];
        const bool keys = storage.kind == Storage::Kind::keys;
        const std::int64_t bytes = cache.heads * cache.slots *
                                   (keys ? cache.key_size : cache.value_size) *
                                   static_cast<std::int64_t>(bytes_of(cache.dtype));
        Buffers made = allocate(bytes, copies_for(bytes));
        random_.fill(device_, made.copies, cache.dtype, 1);
        return made;
      }
      case Storage::Kind::position:
        return with(static_cast<std::int32_t>(options_.position));
      case Storage::Kind::token:
      case Storage::Kind::log:
        return with(std::int32_t{0});
      case Storage::Kind::settings:
        break;  // of no region
      case Storage::Kind::workspace:
        return allocate(storage.bytes.at(options_.tokens), 1);
      case Storage::Kind::counters: {
        Buffers made = allocate(storage.bytes.at(options_.tokens), 1);
        device_.fill(made.copies[0]->address(), made.copies[0]->bytes(), 0);
        return made;
      }
      case Storage::Kind::rope_table: {
        const std::vector<double>& data = step_.graph[storage.node].data();
        const std::vector<float> table = rope_table({data.begin(), data.end()}, storage.scale,
                                                    options_.position + options_.tokens + 1);
        Buffers made = allocate(static_cast<std::int64_t>(table.size() * sizeof(float)), 1);
        device_.upload(made.copies[0]->address(), std::as_bytes(std::span(table)));
        return made;
      }
    }
    AC_UNREACHABLE();
  }

  Buffers with(std::int32_t value) {
    Buffers made;
    made.copies.push_back(device_.allocate(sizeof value));
    device_.upload(made.copies[0]->address(), std::as_bytes(std::span(&value, 1)));
    return made;
  }

  int copies_for(std::int64_t bytes) const {
    const double wanted = kColdFactor * static_cast<double>(device_.info().l2_bytes);
    if (device_.info().sm == 0 || bytes <= 0) return 1;  // the host's caches are no GPU's
    return static_cast<int>(
        std::clamp(std::ceil(wanted / static_cast<double>(bytes)), 1.0, double(kMaxCopies)));
  }

  void fill(const Buffers& made, const Node& node) {
    const DType dtype = node.type.dtype;
    if (node.op == Op::constant || !is_float(dtype)) {
      for (const auto& copy : made.copies) fill_exactly(*copy, node);
      return;
    }
    // As a checkpoint's: sums of products stay near 1.
    const Shape& shape = node.type.shape;
    const bool matrix = node.op == Op::weight && shape.size() > 1;
    random_.fill(device_, made.copies, dtype,
                 matrix ? 1 / std::sqrt(static_cast<double>(shape.back().constant())) : 1);
  }

  // Any small number is an id of every table, and true or false.
  void fill_exactly(const Device::Memory& memory, const Node& node) {
    std::vector<double> elements(memory.bytes() / bytes_of(node.type.dtype));
    for (std::size_t i = 0; i < elements.size(); ++i)
      elements[i] = node.op == Op::constant ? node.data()[node.data().size() == 1 ? 0 : i]
                                            : static_cast<double>(ids_() % 2);
    std::vector<std::byte> bytes(memory.bytes());
    store_elements(node.type.dtype, elements, bytes.data());
    device_.upload(memory.address(), bytes);
  }

  Device& device_;
  const StepGraph& step_;
  const MeasureOptions& options_;
  std::vector<Storage> known_;
  std::vector<Buffers> buffers_;
  RandomPool random_;
  std::mt19937_64 ids_{20261121};
};

}  // namespace

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  return values[middle];
}

std::vector<Latency> measure(Device& device, const StepGraph& step,
                             const std::vector<Contender>& contenders,
                             const std::map<std::string, std::filesystem::path>& files,
                             const MeasureOptions& options) {
  Bench bench(device, step, options);
  std::vector<Latency> latencies(contenders.size());
  std::vector<Bench::Entry> entries;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < contenders.size(); ++i) try {
      Bench::Entry entry = bench.prepare(contenders[i], files);
      bench.warm_up(entry);
      entries.push_back(std::move(entry));
      places.push_back(i);
    } catch (const Error& error) {
      if (error.fault() == Fault::device_lost || !calls_library(contenders[i].made)) throw;
      latencies[i].microseconds = std::numeric_limits<double>::infinity();
    }
  double fastest = entries.empty() ? 0 : entries[0].once;
  for (const Bench::Entry& entry : entries) fastest = std::min(fastest, entry.once);
  // What is far behind, as a fallback may be, need not be known so well.
  for (int round = 0; round < options.rounds; ++round)
    for (Bench::Entry& entry : entries)
      if (!entry.is_done && (round == 0 || entry.once < kFarBehind * fastest)) bench.round(entry);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    latencies[places[i]] = std::move(entries[i].latency);
    latencies[places[i]].microseconds = median(latencies[places[i]].samples);
  }
  return latencies;
}

}  // namespace ac
