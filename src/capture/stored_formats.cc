#include "capture/stored_formats.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/warning.h"
#include "capture/tied_head.h"
#include "checkpoint/layer_of_key.h"
#include "checkpoint/weight_part.h"
#include "ir/weights.h"

namespace ac {
namespace {

using Kind = WeightPart::Kind;

std::vector<std::int64_t> sizes_of(const Node& node) {
  std::vector<std::int64_t> shape;
  for (const Dim& dim : node.type.shape) shape.push_back(dim.constant());
  return shape;
}

// Whether columns are of the groups that they lie in.
bool is_in_order(const TensorView& listed, std::int64_t columns, int of_group) {
  const std::size_t unit = bytes_of(listed.dtype);
  bool usual = listed.bytes.size() == static_cast<std::size_t>(columns) * unit;
  for (std::int64_t i = 0; usual && i < columns; ++i) {
    const auto* const at = listed.bytes.data() + static_cast<std::size_t>(i) * unit;
    usual = load_element(listed.dtype, at) == static_cast<double>(of_group > 0 ? i / of_group : 0);
  }
  return usual;
}

class FormatCheck {
 public:
  FormatCheck(const Checkpoint& checkpoint, const Quantization& said)
      : checkpoint_(checkpoint), said_(said) {}

  void check(const Node& weight) const {
    const WeightFormat format = format_of(weight);
    for (const Node& part : parts_of(weight)) check_part(part);
    if (format.is_plain()) return;
    const std::string& key = weight.text("key");
    const std::string module = key.substr(0, key.rfind('.'));
    const std::vector<std::int64_t> shape = sizes_of(weight);
    check_shape(module, shape);
    if (format.format.listed)
      check_groups(weight.text(key_of(Kind::groups)), format.parts[1].shape(shape)[1]);
    else
      check_order(module, format, shape[1]);
    if (format.format.global) check_global(weight.text(key_of(Kind::global)));
    if (is_whole(format.format.codes) && !format.format.zeros)
      check_no_zeros(module, format, shape);
  }

 private:
  void check_part(const Node& part) const {
    const std::string& key = part.text("key");
    const DType wanted = part.type.dtype;
    const std::optional<PartInFile> in = in_file(part);
    if (!in) {
      const TensorView view = checkpoint_.require(key, sizes_of(part));
      if (!is_float(view.dtype) && is_float(wanted))
        bad_input(
            "{}: tensor {} is stored as {}, and config.json{} says that it is {}, not quantized",
            view.file, quote(key), torch_name(view.dtype),
            said_.format.is_plain() ? ", which has no quantization_config," : "",
            torch_name(wanted));
      return;
    }
    const TensorView view = require_stored(checkpoint_, key, sizes_of(part), *in);
    if (is_float(wanted) && wanted != DType::f32 && view.dtype != wanted)
      bad_input("{}: tensor {} is stored as {}, and scales of other weights as {}", view.file,
                quote(key), torch_name(view.dtype), torch_name(wanted));
  }

  // compressed-tensors says a packed weight's shape once more.
  void check_shape(const std::string& module, const std::vector<std::int64_t>& shape) const {
    const std::optional<TensorView> stated = checkpoint_.find(module + ".weight_shape");
    if (!stated) return;
    if (stated->dtype != DType::i64 && stated->dtype != DType::i32)
      bad_input("{}: tensor {} is stored as {}, and a shape is of whole numbers", stated->file,
                quote(stated->name), torch_name(stated->dtype));
    std::vector<std::int64_t> sizes;
    for (std::size_t at = 0; at < stated->bytes.size(); at += bytes_of(stated->dtype))
      sizes.push_back(
          static_cast<std::int64_t>(load_element(stated->dtype, stated->bytes.data() + at)));
    if (sizes != shape)
      bad_input("{}: tensor {} says {}, but the model needs {}", stated->file, quote(stated->name),
                show_shape(sizes), show_shape(shape));
  }

  void check_global(const std::string& key) const {
    const TensorView stored = *checkpoint_.find(key);
    const double scale = load_element(stored.dtype, stored.bytes.data());
    if (!(scale > 0) || !std::isfinite(scale))
      bad_input("{}: tensor {} is {}, and the scale of a whole matrix is positive and finite",
                stored.file, quote(key), scale);
  }

  // Which group a column is of is stated where columns are in another order, and sometimes else.
  void check_order(const std::string& module, const WeightFormat& format,
                   std::int64_t columns) const {
    for (const char* suffix : {".g_idx", ".weight_g_idx"}) {
      const std::optional<TensorView> order = checkpoint_.find(module + suffix);
      if (!order) continue;
      if (!is_in_order(*order, columns, format.format.columns))
        bad_input(
            "{}: tensor {} puts columns into groups in another order (act-order), and "
            "quantization_config of config.json says nothing of that",
            order->file, quote(order->name));
    }
  }

  void check_groups(const std::string& key, std::int64_t groups) const {
    const TensorView listed = *checkpoint_.find(key);
    for (std::size_t at = 0; at < listed.bytes.size(); at += bytes_of(listed.dtype)) {
      const double group = load_element(listed.dtype, listed.bytes.data() + at);
      if (!(group >= 0 && group < static_cast<double>(groups)))
        bad_input("{}: tensor {} lists the group {}, and there are {}", listed.file, quote(key),
                  group, groups);
    }
  }

  // Of symmetric codes, the middle is 0. Checkpoints that store it nevertheless do so in both of
  // GPTQ's ways, whatever they say.
  void check_no_zeros(const std::string& module, const WeightFormat& format,
                      const std::vector<std::int64_t>& shape) const {
    const WeightLayout& layout = layout_traits(said_.layout);
    const std::optional<TensorView> zeros =
        checkpoint_.find(module + std::string(layout.zeros.suffix));
    if (layout.zeros.suffix.empty() || !zeros) return;
    Format with_zeros = format.format;
    with_zeros.zeros = true;
    const PartInFile part{with_zeros, said_.layout, 2};
    const TensorView all =
        require_part(checkpoint_, zeros->name, traits(with_zeros).parts[2].shape(shape), part);
    const int middle = middle_of(format.format.codes);
    const bool is_gptq = said_.layout == FileLayout::gptq || said_.layout == FileLayout::gptq_v2;
    for (const std::byte zero : all.bytes) {
      const int stored = std::to_integer<int>(zero) - layout.zeros.added;
      if (stored != middle && !(is_gptq && stored == middle - 1))
        bad_input(
            "{}: tensor {} has the zero point {}, and quantization_config of config.json says that "
            "codes are symmetric",
            zeros->file, quote(zeros->name), stored);
    }
  }

  const Checkpoint& checkpoint_;
  const Quantization& said_;
};

// Where groups of columns are listed, and all lists are in order, none is read.
void settle_order(const Checkpoint& checkpoint, Quantization& said) {
  if (!said.format.listed) return;
  const std::string_view suffix = layout_traits(said.layout).groups.suffix;
  bool found = false;
  for (const std::string& key : checkpoint.keys()) {
    if (!key.ends_with(suffix)) continue;
    const TensorView listed = *checkpoint.find(key);
    const auto columns = static_cast<std::int64_t>(listed.bytes.size() / bytes_of(listed.dtype));
    if (!is_in_order(listed, columns, said.format.columns)) return;
    found = true;
  }
  said.format.listed = !found;
}

// Whether a model that reads this tensor would compute something else. GPTQ's checkpoints have
// biases of zeros where there are none.
bool may_count(const Checkpoint& checkpoint, std::string_view key) {
  if (!key.ends_with(".bias")) return key.ends_with(".weight");
  return std::ranges::any_of(checkpoint.find(key)->bytes,
                             [](std::byte byte) { return byte != std::byte{0}; });
}

DType type_of_scales(const Checkpoint& checkpoint, FileLayout layout, DType otherwise) {
  const std::string_view suffix = layout_traits(layout).scales.suffix;
  for (const std::string& key : checkpoint.keys()) {
    if (!key.ends_with(suffix)) continue;
    const auto view = checkpoint.find(key);
    return is_float(view->dtype) ? view->dtype : otherwise;
  }
  return otherwise;
}

}  // namespace

DType stored_dtype(const std::filesystem::path& directory, DType otherwise) {
  if (!has_weights(directory)) return otherwise;
  const Checkpoint checkpoint = Checkpoint::open_model(directory);
  for (const char* key : {kEmbeddingKey, kHeadKey})
    if (const auto view = checkpoint.find(key); view && is_float(view->dtype)) return view->dtype;
  return otherwise;
}

void settle_format(const std::filesystem::path& directory, DType computed, Quantization& said) {
  Format& format = said.format;
  if (format.is_plain()) return;
  std::optional<Checkpoint> checkpoint;
  if (has_weights(directory)) checkpoint = Checkpoint::open_model(directory);
  if (format.many_scales() && format.scale <= ScaleType::bf16) {
    const DType dtype = checkpoint ? type_of_scales(*checkpoint, said.layout, computed) : computed;
    format.scale = dtype == DType::f16    ? ScaleType::f16
                   : dtype == DType::bf16 ? ScaleType::bf16
                                          : ScaleType::f32;
  }
  if (checkpoint) settle_order(*checkpoint, said);
}

void check_formats(const std::filesystem::path& directory, const Quantization& said,
                   const Graph& graph) {
  if (!has_weights(directory)) return;
  const Checkpoint checkpoint = Checkpoint::open_model(directory);
  const FormatCheck check(checkpoint, said);
  for (const Node& node : graph.nodes)
    if (node.op == Op::weight && node.text("store") == "checkpoint") check.check(node);
}

void warn_of_unread(const std::filesystem::path& directory, const Graph& graph) {
  if (!has_weights(directory)) return;
  const Checkpoint checkpoint = Checkpoint::open_model(directory);
  std::set<std::string> read{kEmbeddingKey, kHeadKey};  // one of which may be a copy of the other
  for (const Node& node : graph.nodes)
    if (node.op == Op::weight)
      for (const Node& part : parts_of(node)) read.insert(part.text("key"));
  std::set<int> layers;
  for (const std::string& key : read)
    if (const auto layer = layer_of_key(key)) layers.insert(*layer);
  std::vector<std::string> unread;
  for (const std::string& key : checkpoint.keys()) {
    const auto layer = layer_of_key(key);
    if (layer && !layers.contains(*layer)) continue;  // of whole layers, `compile` tells
    if (!read.contains(key) && may_count(checkpoint, key)) unread.push_back(key);
  }
  if (unread.empty()) return;
  warn("{}: tensor {}{} is in no place of the model that config.json describes, and is not used",
       directory.string(), quote(unread[0]),
       unread.size() > 1 ? fmt::format(", like {} others,", unread.size() - 1) : "");
}

}  // namespace ac
