#include "lab/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/elements.h"
#include "base/error.h"
#include "device/launcher.h"
#include "lab/random_pool.h"

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

// The memory behind one buffer: several copies where what is read must not be in a cache.
struct Copies {
  std::vector<std::unique_ptr<Device::Memory>> copies;
  void* at(std::size_t i) const { return copies[i % copies.size()]->address(); }
};

class Bench {
 public:
  Bench(Device& device, const StepGraph& step, const MeasureOptions& options)
      : device_(device), step_(step), options_(options), launcher_(device) {}

  struct Entry {
    const Contender* contender;
    std::vector<std::size_t> memory = {};  // of each buffer
    std::unique_ptr<Device::Recording> recording = {};
    double once = 0;  // seconds, about
    int repetitions = 1;
    bool is_done = false;
    Latency latency = {};
  };

  Entry prepare(const Contender& contender,
                const std::map<std::string, std::filesystem::path>& files) {
    Entry entry{&contender};
    for (const Buffer& buffer : contender.made.buffers) entry.memory.push_back(bind(buffer));
    for (const Launch& launch : contender.made.launches) launcher_.add(launch, files);
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
    const auto rows = static_cast<std::size_t>(options_.rows);
    std::vector<std::vector<void*>> addresses(rows);
    for (int i = 0; i < repetitions; ++i) {
      for (std::size_t row = 0; row < rows; ++row) {
        addresses[row].clear();
        for (const std::size_t at : entry.memory)
          addresses[row].push_back(memory_[at].at(static_cast<std::size_t>(i) * rows + row));
      }
      const std::vector<Launch>& launches = entry.contender->made.launches;
      if (rows == 1) {
        launcher_.launch(launches, options_.tokens, addresses[0]);
        continue;
      }
      for (const Launch& launch : launches)
        if (launch.rows > 1)
          launcher_.launch_rows(launch, addresses);
        else
          for (const std::vector<void*>& of_row : addresses)
            launcher_.launch({&launch, 1}, 1, of_row);
    }
  }

  // Contenders share what they read and write; work space and what launches leave are one's own.
  std::size_t bind(const Buffer& buffer) {
    const bool own = buffer.is_workspace() || buffer.role == Buffer::Role::counters ||
                     buffer.role == Buffer::Role::kept;
    if (!own)
      for (std::size_t i = 0; i < known_.size(); ++i)
        if (known_[i] == buffer) return i;
    known_.push_back(buffer);
    memory_.push_back(make(buffer));
    return memory_.size() - 1;
  }

  Copies make(const Buffer& buffer) {
    using Role = Buffer::Role;
    const std::int64_t bytes = buffer.bytes.at(options_.tokens);
    switch (buffer.role) {
      case Role::weight: {
        Copies made = allocate(bytes, copies_for(bytes));
        // As a checkpoint's: sums of products stay near 1.
        fill(made, buffer.dtype, buffer.shape.size() > 1 ? buffer.typical() : 1);
        return made;
      }
      case Role::state: {
        const StateSpec& state = options_.states[static_cast<std::size_t>(buffer.state)];
        const auto tensor = static_cast<std::size_t>(buffer.tensor);
        const std::int64_t all = bytes_of(state, tensor);
        Copies made = allocate(all, copies_for(all));
        fill(made, state.tensors[tensor].dtype, random_of(state, tensor).scale);
        return made;
      }
      case Role::ids:
      case Role::scratch: {
        Copies made = allocate(bytes, buffer.is_workspace() ? own_copies() : 1);
        if (!buffer.is_workspace()) fill(made, buffer.dtype, 1);
        return made;
      }
      case Role::constant:
      case Role::rope_table:
        return with(*contents_of(step_, buffer, options_.position + options_.tokens + 1));
      case Role::position:
        return with(static_cast<std::int32_t>(options_.position));
      case Role::token:
      case Role::log:
        return with(std::int32_t{0});
      case Role::until:
      case Role::settings:
      case Role::allowed:
        break;  // of no region
      case Role::counters:
      case Role::kept: {
        Copies made = allocate(bytes, own_copies());
        for (const auto& copy : made.copies) device_.fill(copy->address(), copy->bytes(), 0);
        return made;
      }
    }
    AC_UNREACHABLE();
  }

  // Rows that run at once have their own.
  int own_copies() const { return static_cast<int>(options_.rows); }

  Copies allocate(std::int64_t bytes, int copies) {
    Copies made;
    for (int i = 0; i < copies; ++i)
      made.copies.push_back(
          device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
    return made;
  }

  Copies with(std::int32_t value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return with(std::vector(bytes.begin(), bytes.end()));
  }
  Copies with(const std::vector<std::byte>& bytes) {
    Copies made = allocate(static_cast<std::int64_t>(bytes.size()), 1);
    device_.upload(made.copies[0]->address(), bytes);
    return made;
  }

  int copies_for(std::int64_t bytes) const {
    const double wanted = kColdFactor * static_cast<double>(device_.info().l2_bytes);
    if (device_.info().sm == 0 || bytes <= 0) return 1;  // the host's caches are no GPU's
    return static_cast<int>(
        std::clamp(std::ceil(wanted / static_cast<double>(bytes)), 1.0, double(kMaxCopies)));
  }

  void fill(const Copies& made, DType dtype, double scale) {
    if (is_float(dtype) || is_code(dtype)) return random_.fill(device_, made.copies, dtype, scale);
    // Any small number is an id of every table, and true or false.
    for (const auto& copy : made.copies) {
      std::vector<double> elements(copy->bytes() / bytes_of(dtype));
      for (double& element : elements) element = static_cast<double>(ids_() % 2);
      std::vector<std::byte> bytes(copy->bytes());
      store_elements(dtype, elements, bytes.data());
      device_.upload(copy->address(), bytes);
    }
  }

  Device& device_;
  const StepGraph& step_;
  const MeasureOptions& options_;
  Launcher launcher_;
  std::vector<Buffer> known_;
  std::vector<Copies> memory_;  // of each of those
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
