#include <fmt/format.h>

#include "base/error.h"
#include "program/program.h"

namespace ac {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, const std::string& origin)
      : program_(program), origin_(origin) {}

  void run() {
    if (program_.max_context < 1 || program_.vocab < 1)
      bad_input("{}: context and vocabulary must be positive", origin_);
    for (std::size_t i = 0; i < program_.caches.size(); ++i) {
      const CacheSpec& cache = program_.caches[i];
      if (cache.heads < 1 || cache.key_size < 1 || cache.value_size < 1 || cache.slots < 1)
        bad_input("{}: cache {} has an empty axis", origin_, i);
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) check(program_.buffers[i], i);
    for (const Buffer::Kind kind : {Buffer::Kind::position, Buffer::Kind::token, Buffer::Kind::log})
      check_only(kind);
    check(program_.prefill, "prefill");
    check(program_.decode, "decode");
  }

 private:
  void check(const Buffer& buffer, std::size_t i) {
    const std::string where = fmt::format("{}: buffer {} ({})", origin_, i, buffer.name);
    const std::int64_t bytes = buffer.bytes.at(program_.prefill.max_tokens);
    if (bytes < 0 || bytes > (std::int64_t{1} << 46)) bad_input("{}: {} bytes", where, bytes);
    const auto inside = [&](std::int64_t size, const char* what) {
      if (buffer.offset < 0 || buffer.offset > size || bytes > size - buffer.offset)
        bad_input("{}: is not inside the {} bytes of the {}", where, size, what);
    };
    switch (buffer.kind) {
      case Buffer::Kind::constant:
        return inside(program_.constant_bytes, "constants");
      case Buffer::Kind::keys:
      case Buffer::Kind::values:
        if (buffer.cache < 0 || buffer.cache >= static_cast<std::int64_t>(program_.caches.size()))
          bad_input("{}: cache {} does not exist", where, buffer.cache);
        return;
      case Buffer::Kind::rope_table:
        if (buffer.source < 0 ||
            buffer.source >= static_cast<std::int32_t>(program_.buffers.size()) ||
            program_.buffers[static_cast<std::size_t>(buffer.source)].kind !=
                Buffer::Kind::constant)
          bad_input("{}: its frequencies are no constant", where);
        return;
      case Buffer::Kind::weight: {
        std::int64_t elements = 1;
        for (const std::int64_t size : buffer.shape) {
          if (size < 0 || (size > 0 && elements > (std::int64_t{1} << 46) / size))
            bad_input("{}: its shape is too large", where);
          elements *= size;
        }
        if (elements * static_cast<std::int64_t>(bytes_of(buffer.dtype)) != bytes)
          bad_input("{}: its shape and its {} bytes disagree", where, bytes);
        if (program_.stores.count(buffer.store) == 0)
          bad_input("{}: there is no store \"{}\"", where, buffer.store);
        return;
      }
      default:
        return;
    }
  }

  // What a step begins and ends with: there is one of each.
  void check_only(Buffer::Kind kind) const {
    const std::int64_t count = kind == Buffer::Kind::log ? program_.max_context + 1 : 1;
    int found = 0;
    for (const Buffer& buffer : program_.buffers)
      if (buffer.kind == kind) {
        ++found;
        if (buffer.dtype != DType::i32 || buffer.bytes != Count(4 * count))
          bad_input("{}: the buffer {} is not of {} i32", origin_, buffer.name, count);
      }
    if (found != 1) bad_input("{}: {} buffers of the kind {}", origin_, found, to_string(kind));
  }

  void check(const Phase& phase, const char* name) {
    if (phase.max_tokens < 1) bad_input("{}: {} has no tokens", origin_, name);
    if (phase.notes.size() != phase.launches.size())
      bad_input("{}: {} has {} launches and {} notes", origin_, name, phase.launches.size(),
                phase.notes.size());
    buffer(phase.logits, name);
    const Buffer& ids = buffer(phase.ids, name);
    if (ids.kind != Buffer::Kind::ids || (ids.dtype != DType::i32 && ids.dtype != DType::i64) ||
        ids.bytes.at(phase.max_tokens) !=
            phase.max_tokens * static_cast<std::int64_t>(bytes_of(ids.dtype)))
      bad_input("{}: the token ids of {} are not what they should be", origin_, name);
    for (std::size_t i = 0; i < phase.launches.size(); ++i) {
      const Launch& launch = phase.launches[i];
      const std::string where =
          fmt::format("{}: {} launch {} ({})", origin_, name, i, launch.kernel);
      if (program_.kernels.count(launch.kernel) == 0) bad_input("{}: no such kernel", where);
      if (launch.threads < 1 || launch.threads > 1024 || launch.shared_bytes < 0)
        bad_input("{}: its launch shape is impossible", where);
      for (const Count& size : launch.grid)
        for (const std::int64_t tokens : {std::int64_t{1}, phase.max_tokens})
          if (size.at(tokens) < 1 || size.at(tokens) > 0x7fffffff)
            bad_input("{}: its grid is impossible", where);
      for (const Launch::Pointer& pointer : launch.pointers) {
        if (pointer.at + std::uint64_t{8} > launch.params.size())
          bad_input("{}: a pointer goes beyond its parameters", where);
        const Buffer& to = buffer(pointer.buffer, where);
        for (const std::int64_t tokens : {std::int64_t{1}, phase.max_tokens}) {
          const std::int64_t offset = pointer.offset.at(tokens);
          if (offset < 0 || offset > to.bytes.at(phase.max_tokens))
            bad_input("{}: a pointer is outside of {}", where, to.name);
        }
      }
      for (const Launch::Number& number : launch.numbers)
        if ((number.bytes != 4 && number.bytes != 8) ||
            number.at + std::uint64_t{number.bytes} > launch.params.size())
          bad_input("{}: a number goes beyond its parameters", where);
    }
  }

  const Buffer& buffer(std::int32_t index, const std::string& where) const {
    if (index < 0 || index >= static_cast<std::int32_t>(program_.buffers.size()))
      bad_input("{}: buffer {} does not exist", where, index);
    return program_.buffers[static_cast<std::size_t>(index)];
  }

  const Program& program_;
  const std::string& origin_;
};

}  // namespace

void verify(const Program& program, const std::string& origin) { Verifier(program, origin).run(); }

}  // namespace ac
