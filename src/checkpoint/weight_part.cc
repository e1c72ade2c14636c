#include "checkpoint/weight_part.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

// Of a scale for all, [], [1] and [1, 1] are the same; of one a row, [n] and [n, 1].
std::vector<std::int64_t> without_ones(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> sizes;
  std::ranges::copy_if(shape, std::back_inserter(sizes),
                       [](std::int64_t size) { return size != 1; });
  return sizes;
}

}  // namespace

TensorView require_stored(const Checkpoint& checkpoint, std::string_view key,
                          std::span<const std::int64_t> shape, const PartInFile& in_file,
                          const Shared& share) {
  const std::vector<std::int64_t> wanted = in_file.stored_shape(shape);
  std::optional<TensorView> view = checkpoint.find(key, share);
  using Kind = WeightPart::Kind;
  const Kind kind = in_file.traits_of_part().kind;
  const bool may_lack_ones = kind == Kind::scales || kind == Kind::global || kind == Kind::groups;
  const bool has_shape =
      view && (view->shape == wanted ||
               (may_lack_ones && without_ones(view->shape) == without_ones(wanted)));
  if (!has_shape) view = checkpoint.require(key, wanted);
  const DType dtype = in_file.stored_dtype();
  const bool is_same = view->dtype == dtype ||
                       (kind == Kind::scales && is_float(view->dtype) && is_float(dtype)) ||
                       (view->dtype == DType::u8 && dtype == DType::f8e8m0);
  if (!is_same)
    bad_input(
        "{}: tensor {} is stored as {}, and quantization_config of config.json says that it is {}",
        view->file, quote(key), torch_name(view->dtype), torch_name(dtype));
  return *std::move(view);
}

TensorView require_part(const Checkpoint& checkpoint, std::string_view key,
                        std::span<const std::int64_t> shape, const PartInFile& in_file,
                        const Shared& share) {
  TensorView view = require_stored(checkpoint, key, shape, in_file, share);
  view.shape = {shape.begin(), shape.end()};
  const WeightPart part = in_file.traits_of_part();
  if (in_file.is_as_stored(shape)) {
    if (!is_float(part.dtype)) view.dtype = part.dtype;
    return view;
  }
  const std::size_t element = bytes_of(view.dtype);
  if (!is_float(part.dtype)) view.dtype = part.dtype;
  const std::size_t row = static_cast<std::size_t>(shape[1]) * bytes_of(view.dtype);
  const auto made =
      std::make_shared<std::vector<std::byte>>(row * static_cast<std::size_t>(shape[0]));
  share(shape[0], [&](std::int64_t begin, std::int64_t end) {
    in_file.read(shape, view.bytes.data(), element, begin, end,
                 made->data() + static_cast<std::size_t>(begin) * row);
  });
  view.bytes = *made;
  view.made = made;
  return view;
}

}  // namespace ac
