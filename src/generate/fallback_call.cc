#include "generate/fallback_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "build/digest.h"
#include "generate/counts.h"
#include "generate/plan_text.h"

namespace ac {
namespace {

using kernels::Element;
using kernels::FallbackKind;

constexpr std::int64_t kBlocksPerMultiprocessor = 32;

const char* name_of(Element element) {
  switch (element) {
    case Element::f32:
      return "f32";
    case Element::f16:
      return "f16";
    case Element::bf16:
      return "bf16";
    case Element::i32:
      return "i32";
    case Element::i64:
      return "i64";
    case Element::boolean:
      return "boolean";
    case Element::positions:
      return "positions";
    case Element::e4m3:
      return "e4m3";
    case Element::u8:
      return "u8";
    case Element::e8m0:
      return "e8m0";
    case Element::i8:
      return "i8";
  }
  AC_UNREACHABLE();
}

// Fewer axes are fewer kernels to build and fewer divisions in them. Drops those of size 1 of
// axes `first` to `end`, and joins neighbours that every tensor steps through as if they were one.
// `shape` begins at the axis `shift` of the tensors.
void join_axes(Shape& shape, const std::vector<FallbackTensor*>& tensors, std::size_t shift,
               std::size_t end) {
  for (std::size_t axis = end; axis-- > 0;) {
    const auto erase = [&](std::size_t gone) {
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(gone));
      for (FallbackTensor* tensor : tensors)
        tensor->strides.erase(tensor->strides.begin() + static_cast<std::ptrdiff_t>(shift + gone));
      --end;
    };
    if (shape[axis] == Dim(1)) {
      erase(axis);
      continue;
    }
    if (axis + 1 >= end) continue;
    const Dim joined = shape[axis] * shape[axis + 1];
    const bool fits = std::ranges::all_of(tensors, [&](const FallbackTensor* tensor) {
      const Shape& strides = tensor->strides;
      return strides[shift + axis] == strides[shift + axis + 1] * shape[axis + 1];
    });
    if (!fits || !linear_count(joined)) continue;
    shape[axis + 1] = joined;
    erase(axis);
  }
}

void join_axes(FallbackCall& call) {
  std::vector<FallbackTensor*> tensors;
  for (FallbackTensor& tensor : call.in) tensors.push_back(&tensor);
  const bool reduces = call.kind == FallbackKind::sum || call.kind == FallbackKind::mean ||
                       call.kind == FallbackKind::amax || call.kind == FallbackKind::argmax;
  if (reduces) join_axes(call.inner, tensors, call.outer.size(), call.inner.size());
  tensors.push_back(&call.out);
  join_axes(call.outer, tensors, 0, call.outer.size() - call.indexed);
}

std::string text_of(const FallbackCall& call) {
  std::string in;
  for (const FallbackTensor& tensor : call.in)
    in += fmt::format("{}Element::{}", in.empty() ? "" : ", ", name_of(tensor.element));
  const std::string format =
      call.format.is_plain() ? "" : fmt::format(", .format = {}", cpp_of(call.format));
  return fmt::format(
      "FallbackOp{{.kind = FallbackKind::{}, .in = {{{}}}, .out = Element::{}, .operands = {}, "
      ".rank = {}, .inner = {}{}}}",
      kernels::name_of(call.kind), in, name_of(call.out.element), call.in.size(), call.outer.size(),
      call.inner.size(), format);
}

std::string add_source(Generated& generated, const FallbackCall& call) {
  const std::string op = text_of(call);
  const std::string name =
      fmt::format("fallback_{}_{}", kernels::name_of(call.kind), sha256(op).substr(0, 8));
  const bool known = std::ranges::any_of(
      generated.sources, [&](const KernelSource& source) { return source.entry == name; });
  if (!known)
    generated.sources.push_back(
        {name, fmt::format("#include \"kernels/fallback.cuh\"\nusing namespace ac::kernels;\n"
                           "AC_FALLBACK_KERNEL({}, ({}))\n",
                           name, op)});
  return name;
}

// Writes parameters, and notes where what is not known yet goes.
class Parameters {
 public:
  Parameters(const kernels::FallbackParams& plain, Launch& launch, const std::string& what)
      : params_(plain), launch_(launch), what_(what) {}

  void number(long long& field, const Dim& dim) {
    const Count count = count_of(dim, what_);
    if (count.is_constant())
      field = count.fixed;
    else
      launch_.numbers.push_back({at(&field), 8, count});
  }
  template <class T>
  void pointer(T* const& field, int buffer, const Count& start) {
    launch_.pointers.push_back({at(&field), buffer, start});
  }
  void tensor(kernels::FallbackOperand& field, const FallbackTensor& tensor) {
    pointer(field.data, tensor.buffer, tensor.start);
    number(field.first, tensor.first);
    for (std::size_t axis = 0; axis < tensor.strides.size(); ++axis)
      number(field.strides[axis], tensor.strides[axis]);
  }
  kernels::FallbackParams& fields() { return params_; }
  void finish() {
    launch_.params.resize(sizeof params_);
    std::memcpy(launch_.params.data(), &params_, sizeof params_);
  }

 private:
  std::uint32_t at(const void* field) const {
    return static_cast<std::uint32_t>(static_cast<const char*>(field) -
                                      reinterpret_cast<const char*>(&params_));
  }

  kernels::FallbackParams params_;
  Launch& launch_;
  const std::string& what_;
};

// Threads of one element.
int threads_of(const FallbackCall& call) {
  if (!call.params.together) return 1;
  return call.kind == FallbackKind::attend ? kernels::fallback_threads : kernels::fallback_warp;
}

Count grid_of(const Dim& elements, int threads, const Setting& setting) {
  const std::int64_t most = kBlocksPerMultiprocessor * setting.multiprocessors;
  const std::optional<Count> count = linear_count(elements);
  if (!count || count->at(1) < 1 || count->per_token < 0) return most;
  Count grid = *count;
  grid.per = kernels::fallback_threads / threads, grid.at_most = most;
  return grid;
}

}  // namespace

void add_fallback(Generated& generated, FallbackCall call, const Setting& setting) {
  if (std::ranges::find(call.outer, Dim(0)) != call.outer.end()) return;
  join_axes(call);
  // The elements of a single token are too few to keep many multiprocessors busy.
  call.params.together = setting.multiprocessors > 1 && kernels::loops(call.kind) ? 1 : 0;
  const std::size_t axes = call.outer.size() + call.inner.size();
  if (axes > kernels::fallback_axes)
    bad_input("{}: has {} axes that cannot be joined; kernels exist for {}", call.what, axes,
              kernels::fallback_axes);

  Launch launch;
  launch.kernel = add_source(generated, call);
  launch.grid[0] = grid_of(product(call.outer), threads_of(call), setting);
  launch.threads = kernels::fallback_threads;
  Parameters params(call.params, launch, call.what);
  for (std::size_t i = 0; i < call.in.size(); ++i) params.tensor(params.fields().in[i], call.in[i]);
  params.tensor(params.fields().out, call.out);
  for (std::size_t axis = 0; axis < axes; ++axis)
    params.number(params.fields().sizes[axis], axis < call.outer.size()
                                                   ? call.outer[axis]
                                                   : call.inner[axis - call.outer.size()]);
  if (call.position >= 0) params.pointer(params.fields().position, call.position, 0);
  params.finish();
  generated.launches.push_back(std::move(launch));
}

}  // namespace ac
