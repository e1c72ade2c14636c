#include "runtime/loaded_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "runtime/engine.h"
#include "runtime/packages.h"

namespace ac {
namespace {

using Role = Buffer::Role;

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::set<Product> products_of(const Program& program) {
  std::set<Product> products;
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all())
      if (launch->product) products.insert(*launch->product);
  return products;
}

}  // namespace

Program read_program(const PackageFiles& files) {
  const std::string origin = (files.folder() / "program.json").string();
  return program_from_json(parse_json(files.read("program.json"), origin), origin);
}

std::string room_of(const Program& program) {
  const std::int64_t most = program.max_context, known = program.positions;
  const std::string& why = program.positions_because;
  const std::string because = why.empty() ? "" : ": " + why;
  if (known == most)
    return fmt::format("the package holds {} tokens, as many as the model is right for{}", most,
                       because);
  return fmt::format("the package holds {} tokens (compile with a larger --max-context for more{})",
                     most,
                     known > 0 ? fmt::format("; the model is right for {}{}", known, because) : "");
}

LoadedProgram::LoadedProgram(Device& device, const std::filesystem::path& package,
                             EngineOptions options)
    : device_(device),
      files_(package),
      program_(read_program(files_)),
      records_(options.records),
      free_sequences_(options.sequences),
      launcher_(device) {
  if (const int here = device.info().sm; !runs_on(program_.target, here))
    wrong_usage("{} is compiled for {}, and the device is {}{}", package.string(), program_.target,
                device.name(), here > 0 ? fmt::format(" (sm_{})", here) : "");
  check_room(options.sequences);
  if (!options.overlaps) launcher_.forbid_overlaps();
  load_kernels();
  if (!options.weights)
    options.weights = checkpoint_weights(
        device, PackageStores(program_, files_, options.checkpoint, options.on_warning));
  make_buffers(options);
}

LoadedProgram::~LoadedProgram() = default;

std::int64_t LoadedProgram::bytes_of(const Buffer& buffer) const {
  return std::max<std::int64_t>(buffer.bytes.at(program_.longest_step()), 1);
}

std::vector<void*> LoadedProgram::add_sequence(
    std::vector<std::unique_ptr<Device::Memory>>& memory) {
  if (free_sequences_ < 1)
    wrong_usage("{} is loaded with room for no more sequences", files_.folder().string());
  --free_sequences_;
  std::vector<void*> addresses = addresses_;
  std::int64_t of_states = 0;
  for (const Buffer& buffer : program_.buffers)
    if (buffer.role == Role::state) of_states += aligned(bytes_of(buffer));
  // States lie one behind the other, so that alike parts of them are copied at once.
  memory.push_back(device_.allocate(static_cast<std::size_t>(of_states)));
  auto* state = static_cast<std::byte*>(memory.back()->address());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role == Role::state) {
      addresses[i] = state;
      state += aligned(bytes_of(buffer));
    } else if (buffer.is_of_sequence()) {
      memory.push_back(device_.allocate(static_cast<std::size_t>(bytes_of(buffer))));
      addresses[i] = memory.back()->address();
    }
  }
  return addresses;
}

void LoadedProgram::remove_sequence(const Engine& engine) {
  std::erase(holders_, &engine);
  ++free_sequences_;
}

void LoadedProgram::step_of(std::span<Engine* const> engines) {
  for (Engine* const holder : holders_)
    if (std::ranges::find(engines, holder) == engines.end()) holder->keep_logits();
  holders_.assign(engines.begin(), engines.end());
}

void LoadedProgram::load_kernels() {
  for (const auto& [entry, artifact] : program_.kernels)
    launcher_.add(entry, device_.load(files_.read(artifact), files_.folder() / artifact, entry));
  for (const Product& product : products_of(program_)) try {
      launcher_.add(product);
    } catch (const Error& error) {
      if (error.fault() != Fault::job_failed) throw;
      job_failed(
          "{} has matrix products of a library, which do not run here: {}; or compile the model "
          "for this machine, or with --families that leave out cublaslt",
          files_.folder().string(), error.what());
    }
}

void LoadedProgram::check_room(std::int64_t sequences) const {
  std::int64_t weights = 0, caches = 0, rest = program_.arena_bytes + program_.constant_bytes;
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.longest_step());
    if (buffer.role == Role::weight)
      weights += bytes;
    else if (buffer.role == Role::state)
      caches += bytes * sequences;
    else if (buffer.role != Role::scratch && buffer.role != Role::constant)
      rest += buffer.is_of_sequence() ? bytes * sequences : bytes;
  }
  if (!products_of(program_).empty()) rest += static_cast<std::int64_t>(device_.product_bytes());
  const auto free = static_cast<std::int64_t>(device_.free_bytes());
  if (weights + caches + rest > free)
    job_failed(
        "{} does not fit on {}: weights {:.2f} GiB, keys and values of {}{} tokens {:.2f} GiB, "
        "work space {:.2f} GiB, and {:.2f} GiB are free; compile with a smaller --max-context{}",
        files_.folder().string(), device_.name(), gib(weights),
        sequences > 1 ? fmt::format("{} times ", sequences) : "", program_.max_context, gib(caches),
        gib(rest), gib(free), sequences > 1 ? ", or have fewer --slots" : "");
}

void LoadedProgram::make_rope_table(const Buffer& buffer, void* to, const std::string& constants) {
  const Buffer& source = program_.buffers[static_cast<std::size_t>(buffer.source)];
  std::vector<float> inv_freq(static_cast<std::size_t>(source.bytes.fixed) / sizeof(float));
  std::memcpy(inv_freq.data(), constants.data() + source.offset, inv_freq.size() * sizeof(float));
  const std::vector<float> table = rope_table(inv_freq, buffer.scale, program_.max_context);
  if (static_cast<std::int64_t>(table.size() * sizeof(float)) != buffer.bytes.fixed)
    bad_input("{}: the rope table and its frequencies disagree", files_.folder().string());
  device_.upload(to, std::as_bytes(std::span(table)));
}

void LoadedProgram::make_buffers(const EngineOptions& options) {
  const auto allocate = [&](std::int64_t bytes) {
    return device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  };
  arena_ = allocate(program_.arena_bytes);
  constants_ = allocate(program_.constant_bytes);
  std::string constants;
  if (program_.constant_bytes > 0) {
    constants = files_.read("constants.bin");
    if (static_cast<std::int64_t>(constants.size()) != program_.constant_bytes)
      bad_input("{}/constants.bin has {} bytes, and program.json says {}", files_.folder().string(),
                constants.size(), program_.constant_bytes);
    device_.upload(constants_->address(), std::as_bytes(std::span(constants)));
  }
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.longest_step());
    if (buffer.role == Role::scratch || buffer.role == Role::constant) {
      const Device::Memory& in = buffer.role == Role::scratch ? *arena_ : *constants_;
      addresses_.push_back(static_cast<std::byte*>(in.address()) + buffer.offset);
      continue;
    }
    if (buffer.is_of_sequence()) {
      addresses_.push_back(nullptr);
      continue;
    }
    memory_.push_back(allocate(bytes));
    void* const address = memory_.back()->address();
    addresses_.push_back(address);
    if (buffer.role == Role::counters || buffer.role == Role::kept) {
      device_.fill(address, static_cast<std::size_t>(bytes), 0);
    } else if (buffer.role == Role::rope_table) {
      make_rope_table(buffer, address, constants);
    }
  }
  load_weights(options);
}

void LoadedProgram::load_weights(const EngineOptions& options) {
  for (const Buffer& buffer : program_.buffers)
    if (buffer.role == Role::weight) loaded_.bytes += buffer.bytes.fixed;
  device_.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role != Role::weight) continue;
    options.weights->load(buffer, addresses_[i]);
    done += buffer.bytes.fixed;
    if (options.on_weights) options.on_weights(done, loaded_.bytes);
  }
  device_.synchronize();
  loaded_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ac
