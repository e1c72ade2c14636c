#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/model_files.h"
#include "checkpoint/weight_index.h"
#include "gguf/gguf_model.h"

namespace ac {
namespace fs = std::filesystem;
namespace {

SafetensorsFile open_named(const fs::path& directory, std::string_view name) {
  const auto path = find_model_file(directory, name);
  if (!path) bad_input("{}: there is no such file", (directory / name).string());
  return SafetensorsFile(MappedFile(*path, (directory / name).string()));
}

std::vector<std::string> files_ending_in(const fs::path& directory,
                                         std::initializer_list<std::string_view> endings) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (std::ranges::any_of(endings, [&](auto ending) { return name.ends_with(ending); }))
      names.push_back(name);
  }
  if (error) bad_input("{}: cannot list the directory: {}", directory.string(), error.message());
  std::ranges::sort(names);
  return names;
}

// "model" of "model-00001-of-00002.safetensors"; nothing for other names.
std::optional<std::string> series_of(std::string_view name) {
  constexpr std::string_view kPattern = "-ddddd-of-ddddd.safetensors";
  if (name.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kPattern.size());
  for (std::size_t i = 0; i < tail.size(); ++i) {
    const bool is_digit_place = kPattern[i] == 'd';
    if (is_digit_place ? !std::isdigit(static_cast<unsigned char>(tail[i]))
                       : tail[i] != kPattern[i])
      return std::nullopt;
  }
  return std::string(name.substr(0, name.size() - kPattern.size()));
}

}  // namespace

void alone(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& work) {
  work(0, count);
}

// Either one file, open already, or an index whose shards open on demand.
struct Checkpoint::State {
  fs::path directory;
  std::vector<std::string> warnings;
  std::optional<SafetensorsFile> single;
  std::optional<GgufModel> gguf;
  WeightIndex index;
  std::mutex mutex;  // guards `open_shards`
  std::map<std::string, SafetensorsFile, std::less<>> open_shards;

  std::string shown(std::string_view name) const { return (directory / name).string(); }
  const SafetensorsFile& shard(const std::string& name);
  SafetensorsFile open_shard(const std::string& name) const;
  void check_shards_are_there() const;
  void look_at_extra_files();
};

const SafetensorsFile& Checkpoint::State::shard(const std::string& name) {
  const std::lock_guard lock(mutex);
  if (const auto found = open_shards.find(name); found != open_shards.end()) return found->second;
  return open_shards.emplace(name, open_shard(name)).first->second;
}

SafetensorsFile Checkpoint::State::open_shard(const std::string& name) const {
  SafetensorsFile file = open_named(directory, name);
  for (const auto& [key, holder] : index.shard_of)
    if (holder == name && !file.find(key))
      bad_input("{}: has no tensor {}, though {} puts it there", shown(name), quote(key),
                kWeightIndex);
  for (const SafetensorsEntry& entry : file.entries())
    if (const auto listed = index.shard_of.find(entry.name);
        listed != index.shard_of.end() && listed->second != name)
      bad_input("{}: holds tensor {}, which {} puts into {}", shown(name), quote(entry.name),
                kWeightIndex, quote(listed->second));
  return file;
}

void Checkpoint::State::check_shards_are_there() const {
  std::vector<std::string> missing;
  for (const std::string& name : index.shards)
    if (!find_model_file(directory, name)) missing.push_back(name);
  if (!missing.empty())
    bad_input("{}: {} of the {} shards that {} names are missing: {}", directory.string(),
              missing.size(), index.shards.size(), kWeightIndex, fmt::join(missing, ", "));
}

// A file beside the index is harmless, unless it belongs to the same series as the shards and
// holds a tensor of theirs: then two checkpoints are mixed, and nobody knows which is meant.
void Checkpoint::State::look_at_extra_files() {
  for (const std::string& name : files_ending_in(directory, {".safetensors"})) {
    if (index.mentions(name)) continue;
    const auto series = series_of(name);
    const bool same_series = series && std::ranges::any_of(index.shards, [&](const auto& shard) {
                               return series_of(shard) == series;
                             });
    if (same_series)
      for (const SafetensorsFile file = open_named(directory, name);
           const SafetensorsEntry& entry : file.entries())
        if (const auto listed = index.shard_of.find(entry.name); listed != index.shard_of.end())
          bad_input("{}: {} does not mention this shard, yet it holds tensor {}, as {} does",
                    shown(name), kWeightIndex, quote(entry.name), listed->second);
    warnings.push_back(fmt::format("{}: not mentioned in {}; ignored", shown(name), kWeightIndex));
  }
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open_file(const fs::path& directory, std::string_view name) {
  auto state = std::make_unique<State>();
  state->directory = directory;
  if (const auto path = find_model_file(directory, name); path && is_gguf(*path))
    state->gguf.emplace(*path);
  else
    state->single = open_named(directory, name);
  return Checkpoint(std::move(state));
}

Checkpoint Checkpoint::open_model(const fs::path& directory) {
  const std::vector<std::string> files = files_ending_in(directory, {".safetensors"});
  const bool has_single = std::ranges::binary_search(files, kSingleWeights);
  const auto index_path = find_model_file(directory, kWeightIndex);

  if (index_path) {
    auto state = std::make_unique<State>();
    state->directory = directory;
    state->index = read_weight_index(*index_path, state->shown(kWeightIndex));
    if (!has_single || state->index.mentions(kSingleWeights)) {
      state->check_shards_are_there();
      state->look_at_extra_files();
      return Checkpoint(std::move(state));
    }
  }
  if (has_single || files.size() == 1) {
    Checkpoint checkpoint = open_file(directory, has_single ? kSingleWeights : files[0]);
    for (const std::string& name : files)
      if (has_single && name != kSingleWeights)
        checkpoint.state_->warnings.push_back(fmt::format(
            "{}: ignored, {} has the weights", (directory / name).string(), kSingleWeights));
    return checkpoint;
  }
  if (files.size() > 1)
    bad_input("{}: {} safetensors files ({}, ...) but no {} that says which holds what",
              directory.string(), files.size(), files[0], kWeightIndex);
  const auto pickles = files_ending_in(directory, {".bin", ".pth", ".pt"});
  if (!pickles.empty())
    bad_input(
        "{}: {} is a pickle, which can run code when it is read, and there are no safetensors; "
        "convert it: load the model with transformers and save_pretrained() it",
        directory.string(), pickles[0]);
  bad_input("{}: no weights: neither {} nor {}", directory.string(), kSingleWeights, kWeightIndex);
}

std::vector<std::string> Checkpoint::keys() const {
  std::vector<std::string> names;
  if (state_->gguf)
    for (const auto& [name, weight] : state_->gguf->weights()) names.push_back(name);
  else if (state_->single)
    for (const SafetensorsEntry& entry : state_->single->entries()) names.push_back(entry.name);
  else
    for (const auto& [name, shard] : state_->index.shard_of) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

namespace {

std::optional<DType> plain_type(const GgufWeight& weight) {
  if (weight.heads > 0 || weight.less_one) return std::nullopt;
  if (weight.tensor->type->name == "F32") return DType::f32;
  if (weight.tensor->type->name == "F16") return DType::f16;
  if (weight.tensor->type->name == "BF16") return DType::bf16;
  return std::nullopt;
}

TensorView view_of(const GgufModel& model, std::string_view key, const GgufWeight& weight,
                   const Shared& share) {
  const std::string& file = model.file().name();
  const std::vector<std::int64_t>& shape = weight.tensor->shape;
  if (const auto dtype = plain_type(weight))
    return {std::string(key), *dtype, shape, model.file().bytes(*weight.tensor), file, nullptr};
  const std::size_t row = weight.row_elements() * sizeof(float);
  const auto made =
      std::make_shared<std::vector<std::byte>>(row * static_cast<std::size_t>(weight.rows()));
  share(weight.rows(), [&](std::int64_t begin, std::int64_t end) {
    std::byte* const to = made->data() + static_cast<std::size_t>(begin) * row;
    model.read(weight, begin, end, reinterpret_cast<float*>(to));
  });
  return {std::string(key), DType::f32, shape, *made, file, made};
}

TensorView view_of(const GgufModel& model, std::string_view key, const GgufPart& part,
                   const Shared& share) {
  const std::vector<std::int64_t> shape = part.shape();
  const std::size_t row = static_cast<std::size_t>(shape[1]) * bytes_of(part.part.dtype);
  const auto made =
      std::make_shared<std::vector<std::byte>>(row * static_cast<std::size_t>(shape[0]));
  share(shape[0], [&](std::int64_t begin, std::int64_t end) {
    model.read(part, begin, end, made->data() + static_cast<std::size_t>(begin) * row);
  });
  return {std::string(key), part.part.dtype, shape, *made, model.file().name(), made};
}

}  // namespace

std::optional<TensorView> Checkpoint::find(std::string_view key, const Shared& share) const {
  if (state_->gguf) {
    const auto weight = state_->gguf->weights().find(key);
    if (weight == state_->gguf->weights().end()) {
      const std::optional<GgufPart> part = state_->gguf->find_part(key);
      if (!part) return std::nullopt;
      return view_of(*state_->gguf, key, *part, share);
    }
    return view_of(*state_->gguf, key, weight->second, share);
  }
  const SafetensorsFile* file = nullptr;
  if (state_->single) {
    file = &*state_->single;
  } else {
    const auto listed = state_->index.shard_of.find(key);
    if (listed == state_->index.shard_of.end()) return std::nullopt;
    file = &state_->shard(listed->second);
  }
  const SafetensorsEntry* entry = file->find(key);
  if (!entry) return std::nullopt;
  return file->view(*entry);
}

std::optional<StoredTensor> Checkpoint::find_stored(std::string_view key) const {
  if (state_->gguf) {
    const auto found = state_->gguf->weights().find(key);
    const GgufWeight* weight = nullptr;
    if (found != state_->gguf->weights().end())
      weight = &found->second;
    else if (const auto part = state_->gguf->find_part(key))
      weight = part->weight;
    if (!weight) return std::nullopt;
    const GgufTensor& tensor = *weight->tensor;
    return StoredTensor{std::string(tensor.type->name), tensor.shape,
                        state_->gguf->file().bytes(tensor), state_->gguf->file().name()};
  }
  const std::optional<TensorView> view = find(key);
  if (!view) return std::nullopt;
  return StoredTensor{std::string(short_name(view->dtype)), view->shape, view->bytes, view->file};
}

TensorView Checkpoint::require(std::string_view key, std::span<const std::int64_t> shape,
                               const Shared& share) const {
  auto view = find(key, share);
  if (!view) {
    std::vector<std::string> close = close_matches(key, keys());
    std::ranges::transform(close, close.begin(), quote);
    bad_input("{}: there is no tensor {} (shape {}){}{}",
              state_->gguf     ? state_->gguf->file().name()
              : state_->single ? state_->single->name()
                               : state_->shown(kWeightIndex),
              quote(key), show_shape(shape),
              close.empty() ? "" : "; similar: ", fmt::join(close, ", "));
  }
  if (!std::ranges::equal(view->shape, shape))
    bad_input("{}: tensor {} has shape {}, but the model needs {}", view->file, quote(key),
              show_shape(view->shape), show_shape(shape));
  return *std::move(view);
}

const std::vector<std::string>& Checkpoint::warnings() const { return state_->warnings; }

}  // namespace ac
