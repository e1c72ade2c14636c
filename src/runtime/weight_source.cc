#include "runtime/weight_source.h"

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
#include "checkpoint/weight_part.h"
#include "runtime/fingerprint.h"

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
  CheckpointWeights(Device& device, PackageStores stores)
      : device_(device), stores_(std::move(stores)) {}

  void load(const Buffer& buffer, void* to) override {
    const TensorView view = part_of(buffer);
    if (is_code(view.dtype) != is_code(buffer.dtype))
      bad_input("{}: tensor {} is stored as {}, and the model needs {}", view.file,
                quote(buffer.key), torch_name(view.dtype), torch_name(buffer.dtype));
    const std::size_t from_size = bytes_of(view.dtype), to_size = bytes_of(buffer.dtype);
    const std::size_t count = view.bytes.size() / from_size;
    if (!view.made) expect_read(view.bytes);
    for (std::size_t at = 0; at < count;) {
      const std::size_t some = std::min(count - at, kPiece / to_size);
      Half& half = next();
      auto* const staging = static_cast<std::byte*>(half.memory->address());
      const std::byte* const from = view.bytes.data() + at * from_size;
      share(some, to_size, [&](std::size_t begin, std::size_t end) {
        const std::byte* const first = from + begin * from_size;
        if (!view.made) map_now({first, (end - begin) * from_size});
        if (view.dtype == buffer.dtype)
          std::memcpy(staging + begin * to_size, first, (end - begin) * from_size);
        else
          convert(view, first, buffer, staging + begin * to_size, end - begin);
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

  // As the buffer has it: of a part of a weight in a format, made from what the file stores.
  TensorView part_of(const Buffer& buffer) const {
    const Checkpoint& checkpoint = stores_.at(buffer.store);
    const auto rows = [&](std::int64_t count, const auto& work) {
      share(static_cast<std::size_t>(count), static_cast<std::size_t>(buffer.shape.back()),
            [&](std::size_t begin, std::size_t end) {
              work(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
            });
    };
    if (buffer.in_file.format.is_plain()) return checkpoint.require(buffer.key, buffer.shape, rows);
    return require_part(checkpoint, buffer.key, buffer.shape, buffer.in_file, rows);
  }

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

  Device& device_;
  const PackageStores stores_;
  std::array<Half, 2> halves_;
  std::size_t turn_ = 0;
};

class RandomWeights : public WeightSource {
 public:
  RandomWeights(const RandomValues& values, std::uint64_t seed) : values_(values), seed_(seed) {}

  void load(const Buffer& buffer, void* to) override {
    std::int64_t count = 1;
    for (const std::int64_t size : buffer.shape) count *= size;
    const WeightPart part = buffer.weight_part();
    const std::uint64_t seed = hash(buffer.key);
    // Codes are about their zero point on average. Products would add up what they are off by, in
    // one direction for all rows, and nothing else would count after a few layers.
    if (part.kind == WeightPart::Kind::codes && part.in_byte == 2) {
      values_.fill_codes(to, count, seed);
      return;
    }
    double offset = 0, scale = 0.02;
    if (part.kind == WeightPart::Kind::scales || part.kind == WeightPart::Kind::global ||
        part.kind == WeightPart::Kind::outer)
      offset = buffer.typical(), scale = offset / 2;
    else if (part.kind == WeightPart::Kind::groups)
      offset = scale =
          static_cast<double>((buffer.shape[1] - 1) / buffer.in_file.format.columns) / 2;
    else if (part.is_whole())
      offset = scale = part.most / 2;
    else if (part.kind == WeightPart::Kind::codes)
      scale = buffer.typical() * std::sqrt(3.0);
    else if (buffer.shape.size() > 1)
      scale = std::sqrt(3.0 / static_cast<double>(std::max<std::int64_t>(buffer.shape.back(), 1)));
    else if (!buffer.key.ends_with("bias"))
      offset = 1, scale = 0.1;
    // By name, so that it does not matter in which order a program lists them.
    values_.fill(to, buffer.dtype, count, seed, offset, scale);
    if (part.each == 2) {
      const double minimum = buffer.typical(1);
      values_.fill(static_cast<std::byte*>(to) + bytes_of(buffer.dtype), buffer.dtype, count / 2,
                   seed + static_cast<std::uint64_t>(count), minimum, minimum / 2, 2);
    }
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

PackageStores::PackageStores(const Program& program, const PackageFiles& files,
                             const fs::path& named,
                             const std::function<void(const std::string&)>& warn) {
  const std::string package = files.folder().string();
  std::vector<std::string> outside;
  for (const auto& [name, path] : program.stores) {
    if (is_own(path)) {
      files.check(path);
      stores_.emplace(name, open_store(files.folder() / path));
    } else {
      outside.push_back(name);
    }
  }
  if (!named.empty() && outside.size() != 1)
    wrong_usage("--checkpoint: {} {}", package,
                outside.empty() ? "has its weights in itself" : "has weights in several places");
  if (outside.empty()) return;
  const Fingerprint fingerprint = read_fingerprint(files);
  for (const std::string& name : outside) {
    const fs::path path = named.empty() ? fs::path(program.stores.at(name)) : named;
    if (!fs::exists(path))
      bad_input(
          "the weights of {} are gone: {} does not exist; if they have moved, say where they are: "
          "--checkpoint DIR",
          package, path.string());
    const auto known = fingerprint.find(name);
    if (named.empty() && known == fingerprint.end())
      bad_input(
          "{} was compiled where its weights were not, so that nobody knows whether those of {} "
          "are meant: say so by --checkpoint {}",
          package, path.string(), path.string());
    Checkpoint checkpoint = open_store(path);
    if (known != fingerprint.end()) {
      if (config_differs(known->second, path))
        bad_input("{}: says something else than when {} was compiled: compile the model again",
                  (path / "config.json").string(), package);
      const std::optional<Difference> differs = difference(known->second, checkpoint);
      if (differs && !differs->in_values_only)
        bad_input("{}, when {} was compiled: compile the model again", differs->what, package);
      if (differs && named.empty())
        bad_input(
            "{} than when {} was compiled; to run these weights nevertheless, name them: "
            "--checkpoint {}",
            differs->what, package, path.string());
      if (differs && warn)
        warn(fmt::format("{} than when {} was compiled", differs->what, package));
    }
    stores_.emplace(name, std::move(checkpoint));
  }
}

const Checkpoint& PackageStores::at(const std::string& store) const { return stores_.at(store); }

std::unique_ptr<WeightSource> checkpoint_weights(Device& device, PackageStores stores) {
  return std::make_unique<CheckpointWeights>(device, std::move(stores));
}

std::unique_ptr<WeightSource> random_weights(const RandomValues& values, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(values, seed);
}

}  // namespace ac
