#include "runtime/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace ac {
namespace {

using Kind = Buffer::Kind;

constexpr std::size_t kMaxConstants = std::size_t{4} << 30;

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Element by element, for a checkpoint in another dtype than the program's.
std::vector<std::byte> converted(const TensorView& view, DType to) {
  const std::size_t from_size = bytes_of(view.dtype), to_size = bytes_of(to);
  const std::size_t count = view.bytes.size() / from_size;
  std::vector<std::byte> bytes(count * to_size);
  for (std::size_t i = 0; i < count; ++i)
    store_element(to, load_element(view.dtype, view.bytes.data() + i * from_size),
                  bytes.data() + i * to_size);
  return bytes;
}

}  // namespace

Engine::Engine(Device& device, const std::filesystem::path& package,
               const std::function<void(std::int64_t, std::int64_t)>& on_weights)
    : device_(device), package_(package) {
  const std::filesystem::path file = package / "program.json";
  if (!std::filesystem::exists(file))
    bad_input("{} is no package: it has no program.json", package.string());
  program_ = program_from_json(read_json(file), file.string());
  const DeviceInfo& info = device.info();
  const bool fits = program_.target == "host" ? info.sm == 0 : info.sm > 0;
  if (!fits)
    wrong_usage("{} is compiled for {}, and the device is {}", package.string(), program_.target,
                device.name());
  check_room();
  for (const auto& [entry, artifact] : program_.kernels)
    kernels_[entry] = device.load(package / artifact, entry);
  make_buffers(on_weights);
}

Engine::~Engine() = default;

void Engine::check_room() const {
  std::int64_t weights = 0, caches = 0, rest = program_.arena_bytes + program_.constant_bytes;
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.prefill.max_tokens);
    if (buffer.kind == Kind::weight)
      weights += bytes;
    else if (buffer.kind == Kind::keys || buffer.kind == Kind::values)
      caches += bytes;
    else if (buffer.kind == Kind::rope_table)
      rest += bytes;
  }
  const auto free = static_cast<std::int64_t>(device_.free_bytes());
  if (weights + caches + rest > free)
    job_failed(
        "{} does not fit on {}: weights {:.2f} GiB, keys and values of {} tokens {:.2f} GiB, work "
        "space {:.2f} GiB, and {:.2f} GiB are free; compile with a smaller --max-context",
        package_.string(), device_.name(), gib(weights), program_.max_context, gib(caches),
        gib(rest), gib(free));
}

const Checkpoint& Engine::store(const std::string& name) {
  if (const auto found = stores_.find(name); found != stores_.end()) return found->second;
  const std::filesystem::path path = package_ / program_.stores.at(name);  // absolute ones stay
  if (!std::filesystem::exists(path))
    bad_input("the weights of {} are gone: {} does not exist", package_.string(), path.string());
  Checkpoint opened = std::filesystem::is_directory(path)
                          ? Checkpoint::open_model(path)
                          : Checkpoint::open_file(path.parent_path(), path.filename().string());
  return stores_.emplace(name, std::move(opened)).first->second;
}

void Engine::load_weight(const Buffer& buffer, void* to) {
  const TensorView view = store(buffer.store).require(buffer.key, buffer.shape);
  if (view.dtype == buffer.dtype)
    device_.upload(to, view.bytes);
  else
    device_.upload(to, converted(view, buffer.dtype));
}

void Engine::make_buffers(const std::function<void(std::int64_t, std::int64_t)>& on_weights) {
  const auto allocate = [&](std::int64_t bytes) {
    return device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  };
  arena_ = allocate(program_.arena_bytes);
  constants_ = allocate(program_.constant_bytes);
  std::string constants;
  if (program_.constant_bytes > 0) {
    const std::filesystem::path file = package_ / "constants.bin";
    constants = read_file(file, kMaxConstants);
    if (static_cast<std::int64_t>(constants.size()) != program_.constant_bytes)
      bad_input("{} has {} bytes, and program.json says {}", file.string(), constants.size(),
                program_.constant_bytes);
    device_.upload(constants_->address(), std::as_bytes(std::span(constants)));
  }
  std::int64_t total = 0, done = 0;
  for (const Buffer& buffer : program_.buffers)
    if (buffer.kind == Kind::weight) total += buffer.bytes.fixed;
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.prefill.max_tokens);
    if (buffer.kind == Kind::scratch || buffer.kind == Kind::constant) {
      const Device::Memory& in = buffer.kind == Kind::scratch ? *arena_ : *constants_;
      addresses_.push_back(static_cast<std::byte*>(in.address()) + buffer.offset);
      continue;
    }
    memory_.push_back(allocate(bytes));
    void* const address = memory_.back()->address();
    addresses_.push_back(address);
    if (buffer.kind == Kind::weight) {
      load_weight(buffer, address);
      done += bytes;
      if (on_weights) on_weights(done, total);
    } else if (buffer.kind == Kind::counters) {
      device_.fill(address, static_cast<std::size_t>(bytes), 0);
    } else if (buffer.kind == Kind::rope_table) {
      const Buffer& source = program_.buffers[static_cast<std::size_t>(buffer.source)];
      const std::byte* data = reinterpret_cast<const std::byte*>(constants.data()) + source.offset;
      std::vector<float> inv_freq(static_cast<std::size_t>(source.bytes.fixed) / sizeof(float));
      std::memcpy(inv_freq.data(), data, inv_freq.size() * sizeof(float));
      const std::vector<float> table = rope_table(inv_freq, buffer.scale, program_.max_context);
      if (static_cast<std::int64_t>(table.size() * sizeof(float)) != bytes)
        bad_input("{}: the rope table and its frequencies disagree", package_.string());
      device_.upload(address, std::as_bytes(std::span(table)));
    }
  }
  device_.synchronize();
}

void Engine::step(const Phase& phase, const std::vector<std::int64_t>& ids) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  if (position_ + tokens > program_.max_context)
    bad_input(
        "the package holds {} tokens, and this would be token {}: compile with a larger "
        "--max-context",
        program_.max_context, position_ + tokens);
  for (const std::int64_t id : ids)
    if (id < 0 || id >= program_.vocab)
      bad_input("the token id {} is outside the vocabulary of {}", id, program_.vocab);
  const Buffer& ids_buffer = program_.buffers[static_cast<std::size_t>(phase.ids)];
  void* const ids_address = addresses_[static_cast<std::size_t>(phase.ids)];
  if (ids_buffer.dtype == DType::i64) {
    device_.upload(ids_address, std::as_bytes(std::span(ids)));
  } else {
    const std::vector<std::int32_t> narrow(ids.begin(), ids.end());
    device_.upload(ids_address, std::as_bytes(std::span(narrow)));
  }
  const auto position = static_cast<std::int32_t>(position_);
  for (std::size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].kind == Kind::position)
      device_.upload(addresses_[i], std::as_bytes(std::span(&position, 1)));
  for (const Launch& launch : phase.launches) {
    LaunchShape shape;
    for (std::size_t axis = 0; axis < 3; ++axis)
      shape.grid[axis] = static_cast<unsigned>(launch.grid[axis].at(tokens));
    shape.threads = static_cast<unsigned>(launch.threads);
    shape.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
    device_.launch(*kernels_.at(launch.kernel), shape, bind_params(launch, tokens, addresses_));
  }
  position_ += tokens;
  last_ = &phase;
}

void Engine::prefill(const std::vector<std::int64_t>& ids, std::int64_t chunk) {
  const std::int64_t most = program_.prefill.max_tokens;
  const auto size = static_cast<std::size_t>(chunk > 0 ? std::min(chunk, most) : most);
  for (std::size_t at = 0; at < ids.size(); at += size) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(at);
    step(program_.prefill,
         {begin, begin + static_cast<std::ptrdiff_t>(std::min(size, ids.size() - at))});
  }
}

void Engine::decode(std::int64_t id) { step(program_.decode, {id}); }

std::vector<double> Engine::logits() {
  AC_ASSERT(last_ != nullptr);
  const auto index = static_cast<std::size_t>(last_->logits);
  const DType dtype = program_.buffers[index].dtype;
  const std::size_t size = bytes_of(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(program_.vocab) * size);
  device_.download(bytes, addresses_[index]);
  std::vector<double> logits;
  for (std::size_t at = 0; at < bytes.size(); at += size)
    logits.push_back(load_element(dtype, bytes.data() + at));
  return logits;
}

std::int64_t Engine::chosen() {
  AC_ASSERT(last_ != nullptr);
  std::int32_t token = -1;
  device_.download(std::as_writable_bytes(std::span(&token, 1)),
                   addresses_[static_cast<std::size_t>(last_->token)]);
  if (token < 0 || token >= program_.vocab)
    job_failed("the step chose the token {} of {}: the weights or the model are damaged", token,
               program_.vocab);
  return token;
}

}  // namespace ac
