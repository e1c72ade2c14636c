#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "kernels/advance_plan.h"
#include "kernels/mask_logits_plan.h"
#include "kernels/sampling_plan.h"
#include "program/program.h"
#include "program/sampling.h"

namespace ac {
namespace {

constexpr std::int64_t kMost = 0x7fffffff, kMostBytes = std::int64_t{1} << 46;
constexpr std::size_t kMostPhases = 256;

class Verifier {
 public:
  Verifier(const Program& program, const std::string& origin)
      : program_(program), origin_(origin) {}

  void run() {
    if (program_.max_context < 1 || program_.max_context > kMost || program_.vocab < 1 ||
        program_.vocab > kernels::most_logits)
      bad_input("{}: context and vocabulary must be positive, and positions and ids 32 bits wide",
                origin_);
    if (program_.positions < 0 ||
        (program_.positions > 0 && program_.positions < program_.max_context))
      bad_input("{}: a context of {} tokens, and the model knows {} positions", origin_,
                program_.max_context, program_.positions);
    if (program_.arena_bytes < 0 || program_.arena_bytes > kMostBytes ||
        program_.constant_bytes < 0 || program_.constant_bytes > kMostBytes)
      bad_input("{}: the sizes of arena and constants are impossible", origin_);
    check_steps();
    for (std::size_t i = 0; i < program_.states.size(); ++i) check(program_.states[i], i);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) check(program_.buffers[i], i);
    for (const auto& [entry, file] : program_.kernels) check_inside(entry, file);
    using Role = Buffer::Role;
    for (const Role role : {Role::position, Role::token, Role::log, Role::until}) check_only(role);
    const auto settings =
        std::count_if(program_.buffers.begin(), program_.buffers.end(),
                      [](const Buffer& buffer) { return buffer.role == Buffer::Role::settings; });
    if (settings > 1) bad_input("{}: {} buffers of the role settings", origin_, settings);
    for (const Phase& phase : program_.phases)
      if (phase.draw.empty() == program_.draws() && phase.rows != Rows::each)
        bad_input("{}: one phase can draw tokens, the other cannot", origin_);
    // The engine launches the first and the last of these by themselves. They alone choose the
    // tokens of several sequences.
    for (const Phase& phase : program_.phases)
      if (program_.draws() || phase.rows == Rows::each ? phase.masked.size() < 2
                                                       : !phase.masked.empty())
        bad_input("{}: {} has {} launches that choose under a mask", origin_, phase.label(),
                  phase.masked.size());
    if (program_.draws() && settings == 0)
      bad_input("{}: tokens are drawn by no settings", origin_);
    if (program_.draws()) check_only(Role::allowed);
    for (const Phase& phase : program_.phases)
      check(phase, fmt::format("{}: {}", origin_, phase.label()));
  }

 private:
  // One phase runs each step of 1 to longest_step() tokens, after any number of cached tokens.
  void check_steps() const {
    const std::vector<Phase>& phases = program_.phases;
    if (phases.empty() || phases.size() > kMostPhases)
      bad_input("{}: it has {} phases", origin_, phases.size());
    for (const Phase& phase : phases) {
      if (!is_name(phase.name))
        bad_input("{}: a phase's name is not made of letters, digits and spaces", origin_);
      if (phase.from < 0) bad_input("{}: {} begins after {}", origin_, phase.name, phase.from);
      if (phase.min_tokens < 1 || phase.max_tokens < phase.min_tokens ||
          phase.max_tokens > program_.max_context)
        bad_input("{}: {} has steps of {} to {} tokens", origin_, phase.label(), phase.min_tokens,
                  phase.max_tokens);
    }
    for (auto b = phases.begin(); b != phases.end(); ++b)
      for (auto a = phases.begin(); a != b; ++a) {
        const bool same =
            a->min_tokens == b->min_tokens && a->max_tokens == b->max_tokens && a->rows == b->rows;
        const std::int64_t shared = std::max(a->min_tokens, b->min_tokens);
        const bool meet = shared <= std::min(a->max_tokens, b->max_tokens) && a->rows == b->rows;
        if (same ? a->from == b->from : meet)
          bad_input("{}: {} and {} both have steps of {} tokens", origin_, a->label(), b->label(),
                    shared);
        if (same != (a->name == b->name))
          bad_input("{}: {} and {}: phases have one name where they differ in \"from\" alone",
                    origin_, a->label(), b->label());
      }
    for (const Rows rows : {Rows::last, Rows::all, Rows::each}) check_rows(rows);
    const std::int64_t longest = program_.longest_step();
    if (longest < 1) bad_input("{}: no phase gives the logits of the last row alone", origin_);
    if (const std::int64_t all = program_.longest_step(Rows::all); all > longest)
      bad_input("{}: steps with the logits of all rows have up to {} tokens, and others {}",
                origin_, all, longest);
    if (const std::int64_t each = program_.longest_step(Rows::each); each > longest)
      bad_input("{}: steps of several sequences have up to {} tokens, and others {}", origin_, each,
                longest);
    if (program_.longest_step(Rows::each) > 0 && !program_.draws())
      bad_input("{}: steps of several sequences cannot choose tokens", origin_);
  }

  void check_rows(Rows rows) const {
    const std::int64_t longest = program_.longest_step(rows);
    for (std::int64_t tokens = 1; tokens <= longest;) {
      const auto found = std::ranges::find_if(program_.phases, [&](const Phase& phase) {
        return phase.rows == rows && phase.from == 0 && phase.min_tokens <= tokens &&
               tokens <= phase.max_tokens;
      });
      if (found == program_.phases.end())
        bad_input("{}: no phase has steps of {} tokens from the first token on", origin_, tokens);
      tokens = found->max_tokens + 1;
    }
  }

  static bool is_name(const std::string& name) {
    constexpr std::string_view kUsed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ";
    return !name.empty() && name.find_first_not_of(kUsed) == std::string::npos;
  }

  // The product of sizes, which may come from anywhere; nothing if it is too large.
  static std::optional<std::int64_t> product(std::initializer_list<std::int64_t> sizes) {
    return product(std::vector<std::int64_t>(sizes));
  }
  static std::optional<std::int64_t> product(const std::vector<std::int64_t>& sizes) {
    std::int64_t total = 1;
    for (const std::int64_t size : sizes) {
      if (size < 0 || (size > 0 && total > kMostBytes / size)) return std::nullopt;
      total *= size;
    }
    return total;
  }

  static std::int64_t size_of(DType dtype) { return static_cast<std::int64_t>(bytes_of(dtype)); }

  void check(const StateSpec& state, std::size_t i) const {
    if (const char* why = why_impossible(state)) bad_input("{}: state {} {}", origin_, i, why);
    // A step overwrites no token that its first one still sees.
    const std::int64_t least = slots_for(state, program_.max_context, program_.longest_step());
    if (state.slots < least)
      bad_input("{}: state {} has {} slots, and needs {}", origin_, i, state.slots, least);
  }

  void check_inside(const std::string& entry, const std::string& file) const {
    const std::filesystem::path path(file);
    const bool leaves =
        path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
    if (file.empty() || leaves)
      bad_input("{}: the file \"{}\" of the kernel {} is not in the package", origin_, file, entry);
  }

  void check(const Buffer& buffer, std::size_t i) const {
    const std::string where = fmt::format("{}: buffer {} ({})", origin_, i, buffer.name);
    const std::int64_t tokens = program_.longest_step(), bytes = buffer.bytes.at(tokens);
    if (bytes < 0 || bytes > kMostBytes) bad_input("{}: {} bytes", where, bytes);
    const auto is = [&](std::optional<std::int64_t> wanted) {
      if (!buffer.bytes.is_constant() || bytes != wanted)
        bad_input("{}: its {} bytes are not what it holds", where, bytes);
    };
    switch (buffer.role) {
      case Buffer::Role::ids:
        if (buffer.dtype != DType::i32 && buffer.dtype != DType::i64)
          bad_input("{}: ids are integers", where);
        if (bytes / size_of(buffer.dtype) < tokens) bad_input("{}: too short for a step", where);
        return;
      case Buffer::Role::position:
      case Buffer::Role::token:
        if (buffer.dtype != DType::i32) bad_input("{}: is one i32", where);
        return is(4);
      case Buffer::Role::log:
      case Buffer::Role::until:
      case Buffer::Role::allowed:
        return;  // see check_only
      case Buffer::Role::constant:
        if (buffer.offset < 0 || bytes > program_.constant_bytes ||
            buffer.offset > program_.constant_bytes - bytes)
          bad_input("{}: is not inside the {} bytes of the constants", where,
                    program_.constant_bytes);
        return;
      case Buffer::Role::state: {
        if (buffer.state < 0 || buffer.state >= static_cast<std::int64_t>(program_.states.size()))
          bad_input("{}: state {} does not exist", where, buffer.state);
        const StateSpec& state = program_.states[static_cast<std::size_t>(buffer.state)];
        if (buffer.tensor < 0 || static_cast<std::size_t>(buffer.tensor) >= state.tensors.size())
          bad_input("{}: state {} has no tensor {}", where, buffer.state, buffer.tensor);
        const StateTensor& tensor = state.tensors[static_cast<std::size_t>(buffer.tensor)];
        return is(product({tensor.rows, state.slots, tensor.size, size_of(tensor.dtype)}));
      }
      case Buffer::Role::rope_table: {
        if (buffer.source < 0 ||
            buffer.source >= static_cast<std::int32_t>(program_.buffers.size()))
          bad_input("{}: buffer {} does not exist", where, buffer.source);
        const Buffer& source = program_.buffers[static_cast<std::size_t>(buffer.source)];
        if (source.role != Buffer::Role::constant || source.dtype != DType::f32 ||
            !source.bytes.is_constant())
          bad_input("{}: its frequencies are no constant", where);
        // Cosine and sine of each.
        return is(product({program_.max_context, source.bytes.fixed, 2}));
      }
      case Buffer::Role::weight: {
        std::vector<std::int64_t> sizes = buffer.shape;
        sizes.push_back(size_of(buffer.dtype));
        if (buffer.in_file.format.is_plain() ? is_code(buffer.dtype) : buffer.shape.size() != 2)
          bad_input("{}: is no part of a weight", where);
        is(product(sizes));
        if (program_.stores.count(buffer.store) == 0)
          bad_input("{}: there is no store \"{}\"", where, buffer.store);
        return;
      }
      case Buffer::Role::settings:
        return is(kSettingsBytes);
      case Buffer::Role::scratch:
      case Buffer::Role::counters:
      case Buffer::Role::kept:
        return;
    }
  }

  // What a step begins and ends with: there is one of each.
  void check_only(Buffer::Role role) const {
    std::int64_t count = 1;
    if (role == Buffer::Role::log) count = program_.max_context + 1;
    if (role == Buffer::Role::allowed)
      count = kernels::mask_words(static_cast<int>(program_.vocab));
    if (role == Buffer::Role::until) count = sizeof(kernels::Until) / sizeof(std::int32_t);
    int found = 0;
    for (const Buffer& buffer : program_.buffers)
      if (buffer.role == role) {
        ++found;
        if (buffer.dtype != DType::i32 || buffer.bytes != Count(4 * count))
          bad_input("{}: the buffer {} is not of {} i32", origin_, buffer.name, count);
      }
    if (found != 1) bad_input("{}: {} buffers of the role {}", origin_, found, to_string(role));
  }

  void check(const Phase& phase, const std::string& where) const {
    if (phase.notes.size() != phase.launches.size())
      bad_input("{}: {} launches and {} notes", where, phase.launches.size(), phase.notes.size());
    const Buffer& ids = buffer(phase.ids, where);
    if (ids.role != Buffer::Role::ids || (ids.dtype != DType::i32 && ids.dtype != DType::i64) ||
        ids.bytes.at(phase.max_tokens) != phase.max_tokens * size_of(ids.dtype))
      bad_input("{}: its token ids are not what they should be", where);
    // They come in one piece for all steps of a prompt.
    const Phase& first = program_.phases.front();
    if (ids.dtype != buffer(first.ids, where).dtype)
      bad_input("{}: its token ids are of another type than those of {}", where, first.label());
    const Buffer& logits = buffer(phase.logits, where);
    const std::int64_t rows = phase.rows == Rows::last ? 1 : phase.max_tokens;
    if (!is_float(logits.dtype) ||
        logits.bytes.at(phase.max_tokens) / size_of(logits.dtype) < program_.vocab * rows)
      bad_input("{}: it leaves no logits in {}", where, logits.name);
    check_placed(logits, phase, where);
    for (std::size_t i = 0; i < phase.launches.size(); ++i)
      check(phase.launches[i], phase,
            fmt::format("{} launch {} ({})", where, i, phase.launches[i].kernel));
    for (std::size_t i = 0; i < phase.draw.size(); ++i)
      check(phase.draw[i], phase, fmt::format("{} draw {} ({})", where, i, phase.draw[i].kernel));
    for (const Launch& launch : phase.masked)
      if (launch.each_row != (phase.rows == Rows::each))
        bad_input("{}: choices under a mask are made for each row where each has a sequence",
                  where);
    for (std::size_t i = 0; i < phase.masked.size(); ++i)
      check(phase.masked[i], phase,
            fmt::format("{} masked {} ({})", where, i, phase.masked[i].kernel));
  }

  // In the arena, for steps of this phase.
  void check_placed(const Buffer& buffer, const Phase& phase, const std::string& where) const {
    if (buffer.role != Buffer::Role::scratch) return;
    const std::int64_t bytes = buffer.bytes.at(phase.max_tokens);
    if (bytes < 0 || buffer.offset < 0 || bytes > program_.arena_bytes ||
        buffer.offset > program_.arena_bytes - bytes)
      bad_input("{}: {} is not inside the {} bytes of the arena", where, buffer.name,
                program_.arena_bytes);
  }

  void check(const Launch& launch, const Phase& phase, const std::string& where) const {
    const bool of_several = phase.rows == Rows::each;
    if (launch.each_row && !of_several)
      bad_input("{}: runs for each row, in a step of one sequence", where);
    const std::array tokens = tokens_of(launch, phase);
    if (!launch.product) check_shape(launch, phase, where);
    for (const Launch::Pointer& pointer : launch.pointers) {
      if (pointer.at + std::uint64_t{8} > launch.params.size())
        bad_input("{}: a pointer goes beyond its parameters", where);
      const Buffer& to = buffer(pointer.buffer, where);
      check_placed(to, phase, where);
      if (of_several && !launch.each_row && to.is_of_sequence())
        bad_input("{}: takes the {} of one sequence for several", where, to.name);
      for (const std::int64_t t : tokens)
        if (pointer.offset.at(t) < 0 || pointer.offset.at(t) > to.bytes.at(phase.max_tokens))
          bad_input("{}: a pointer is outside of {}", where, to.name);
    }
    for (const Launch::Map& map : launch.maps) {
      const Buffer& of = buffer(map.buffer, where);
      check_placed(of, phase, where);
      for (const std::int64_t t : tokens) {
        if (const char* why = why_impossible(map, launch, t)) bad_input("{}: {}", where, why);
        const std::int64_t offset = map.offset.at(t), bytes = of.bytes.at(phase.max_tokens);
        if (offset < 0 || offset > bytes || bytes_of(map, t) > bytes - offset)
          bad_input("{}: the matrix of a map is not inside {}", where, of.name);
      }
    }
    for (const Launch::Number& number : launch.numbers) {
      if ((number.bytes != 4 && number.bytes != 8) ||
          number.at + std::uint64_t{number.bytes} > launch.params.size())
        bad_input("{}: a number goes beyond its parameters", where);
      for (const std::int64_t t : tokens)
        if (number.bytes == 4 && !std::in_range<std::int32_t>(number.value.at(t)))
          bad_input("{}: a number is too large", where);
    }
    if (launch.product) check_product(launch, phase, where);
  }

  // The least and the most tokens that it is launched for.
  static std::array<std::int64_t, 2> tokens_of(const Launch& launch, const Phase& phase) {
    if (launch.each_row) return {1, 1};
    return {phase.min_tokens, phase.max_tokens};
  }

  void check_shape(const Launch& launch, const Phase& phase, const std::string& where) const {
    if (program_.kernels.count(launch.kernel) == 0) bad_input("{}: no such kernel", where);
    if (launch.threads < 1 || launch.threads > 1024 || launch.shared_bytes < 0)
      bad_input("{}: its launch shape is impossible", where);
    for (const Count& size : launch.grid)
      for (const std::int64_t t : tokens_of(launch, phase))
        if (size.at(t) < 1 || size.at(t) > kMost) bad_input("{}: its grid is impossible", where);
  }

  // That all of the matrices lie in their buffers: a library does not look.
  void check_product(const Launch& launch, const Phase& phase, const std::string& where) const {
    const Product& product = *launch.product;
    if (const char* why = why_impossible(product)) bad_input("{}: {}", where, why);
    if (const std::string why = why_no_product(launch); !why.empty())
      bad_input("{}: {}", where, why);
    const auto [least, most] = tokens_of(launch, phase);
    // Sizes do not fall with the tokens of a step.
    const std::int64_t rows = launch.numbers[0].value.at(most);
    if (launch.numbers[0].value.at(least) < 1 || rows > kMost)
      bad_input("{}: a product of an impossible number of rows", where);
    for (const Launch::Pointer& pointer : launch.pointers) {
      const Buffer& to = buffer(pointer.buffer, where);
      const auto elements = elements_of(product, pointer.at, rows);
      const auto bytes = elements ? this->product({*elements, size_of(product.dtype)}) : elements;
      if (!bytes || *bytes > to.bytes.at(most) - pointer.offset.at(most))
        bad_input("{}: its matrices are not inside {}", where, to.name);
    }
  }

  // Of the matrix whose address stands there.
  static std::optional<std::int64_t> elements_of(const Product& of, std::uint32_t at,
                                                 std::int64_t rows) {
    if (at == offsetof(ProductParams, weight)) return product({of.n, of.k});
    if (at == offsetof(ProductParams, bias)) return of.n;
    if (at != offsetof(ProductParams, x)) return product({rows, of.n});
    const auto before = product({rows - 1, of.x_pitch});
    return before ? std::optional(*before + of.k) : before;
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
