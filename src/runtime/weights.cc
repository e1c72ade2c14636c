#include "runtime/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{32} << 20;
// One thread copies slower than PCIe does, and converts slower still.
constexpr std::size_t kThreads = 4, kLeastSlice = std::size_t{1} << 20;

// Calls `work` with parts of [0, count) that make it up, in several threads where that pays.
void share(std::size_t count, std::size_t bytes_each,
           const std::function<void(std::size_t begin, std::size_t end)>& work) {
  const std::size_t most = std::max<std::size_t>(count * bytes_each / kLeastSlice, 1);
  const std::size_t threads =
      std::min({kThreads, most,
                static_cast<std::size_t>(std::max(std::thread::hardware_concurrency(), 1u))});
  std::vector<std::exception_ptr> failures(threads);
  const auto part = [&](std::size_t i) {
    try {
      work(count * i / threads, count * (i + 1) / threads);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(part, i);
    part(0);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

class CheckpointWeights : public WeightSource {
 public:
  CheckpointWeights(Device& device, const Program& program, fs::path package)
      : device_(device), program_(program), package_(std::move(package)) {}

  void load(const Buffer& buffer, void* to) override {
    const TensorView view = store(buffer.store).require(buffer.key, buffer.shape);
    const std::size_t from_size = bytes_of(view.dtype), to_size = bytes_of(buffer.dtype);
    const std::size_t count = view.bytes.size() / from_size;
    expect_read(view.bytes);
    for (std::size_t at = 0; at < count;) {
      const std::size_t some = std::min(count - at, kPiece / to_size);
      Half& half = next();
      auto* const staging = static_cast<std::byte*>(half.memory->address());
      const std::byte* const from = view.bytes.data() + at * from_size;
      share(some, to_size, [&](std::size_t begin, std::size_t end) {
        const std::byte* const part = from + begin * from_size;
        map_now({part, (end - begin) * from_size});
        if (view.dtype == buffer.dtype)
          std::memcpy(staging + begin * to_size, part, (end - begin) * from_size);
        else
          convert(view, part, buffer, staging + begin * to_size, end - begin);
      });
      device_.upload_later(static_cast<std::byte*>(to) + at * to_size, staging, some * to_size);
      half.sent->set();
      at += some;
    }
  }

 private:
  struct Half {
    std::unique_ptr<Device::Memory> memory;
    std::unique_ptr<Device::Mark> sent;
  };

  static void convert(const TensorView& view, const std::byte* from, const Buffer& buffer,
                      std::byte* to, std::size_t count) {
    const std::size_t from_size = bytes_of(view.dtype), to_size = bytes_of(buffer.dtype);
    for (std::size_t i = 0; i < count; ++i, from += from_size, to += to_size) {
      const double element = load_element(view.dtype, from);
      store_element(buffer.dtype, element, to);
      if (std::isfinite(element) && !std::isfinite(load_element(buffer.dtype, to)))
        bad_input(
            "{}: tensor {} has the element {}, which {} cannot hold: compile the model with "
            "another --dtype",
            view.file, quote(buffer.key), element, torch_name(buffer.dtype));
    }
  }

  Half& next() {
    Half& half = halves_[turn_ ^= 1];
    if (!half.memory)
      half = {device_.allocate_staging(kPiece), device_.make_mark()};
    else
      half.sent->wait();
    return half;
  }

  const Checkpoint& store(const std::string& name) {
    if (const auto found = stores_.find(name); found != stores_.end()) return found->second;
    const fs::path path = package_ / program_.stores.at(name);  // absolute ones stay
    if (!fs::exists(path))
      bad_input("the weights of {} are gone: {} does not exist", package_.string(), path.string());
    Checkpoint opened = fs::is_directory(path)
                            ? Checkpoint::open_model(path)
                            : Checkpoint::open_file(path.parent_path(), path.filename().string());
    return stores_.emplace(name, std::move(opened)).first->second;
  }

  Device& device_;
  const Program& program_;
  const fs::path package_;
  std::map<std::string, Checkpoint> stores_;
  std::array<Half, 2> halves_;
  std::size_t turn_ = 0;
};

class RandomWeights : public WeightSource {
 public:
  RandomWeights(const RandomValues& values, std::uint64_t seed) : values_(values), seed_(seed) {}

  void load(const Buffer& buffer, void* to) override {
    std::int64_t count = 1;
    for (const std::int64_t size : buffer.shape) count *= size;
    double offset = 0, scale = 0.02;
    if (buffer.shape.size() > 1)
      scale = std::sqrt(3.0 / static_cast<double>(std::max<std::int64_t>(buffer.shape.back(), 1)));
    else if (!buffer.key.ends_with("bias"))
      offset = 1, scale = 0.1;
    // By name, so that it does not matter in which order a program lists them.
    values_.fill(to, buffer.dtype, count, hash(buffer.key), offset, scale);
  }

 private:
  std::uint64_t hash(const std::string& text) const {
    std::uint64_t hash = 0xcbf29ce484222325ull ^ seed_;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return hash << 20;  // far from one another, whatever is added to count elements
  }

  const RandomValues& values_;
  const std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<WeightSource> checkpoint_weights(Device& device, const Program& program,
                                                 const fs::path& package) {
  return std::make_unique<CheckpointWeights>(device, program, package);
}

std::unique_ptr<WeightSource> random_weights(const RandomValues& values, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(values, seed);
}

}  // namespace ac
