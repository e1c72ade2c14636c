// The weights of a model, by tensor name, wherever they are: one safetensors file, the shards of an
// index, or a GGUF file, whose tensors have HuggingFace's names here. Files open when a tensor of
// theirs is first asked for, and stay mapped.
//
// Thread-safe after construction. Views stay valid as long as the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace ac {

// Calls its argument with ranges that make up [0, count).
using Shared = std::function<void(
    std::int64_t count, const std::function<void(std::int64_t begin, std::int64_t end)>&)>;
void alone(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& work);

// A tensor as its file has it, for who compares files.
struct StoredTensor {
  std::string type;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;
};

class Checkpoint {
 public:
  // A model's directory: model.safetensors, or model.safetensors.index.json with its shards, or
  // the only *.safetensors in it. Pickled weights (.bin, .pth) are refused: reading them would
  // run code that the file holds.
  static Checkpoint open_model(const std::filesystem::path& directory);

  // One named file beneath `directory`, under the same rules for names and symlinks.
  static Checkpoint open_file(const std::filesystem::path& directory, std::string_view name);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Every tensor's name, sorted. Does not open shards.
  std::vector<std::string> keys() const;
  // Nothing if no file has the tensor. Throws if its file is damaged or contradicts the index. What
  // a GGUF file has in blocks, or otherwise than HuggingFace, is made, in float32; and of blocks
  // each part, by the names that the layout `gguf` gives them (base/weight_layout.h).
  std::optional<TensorView> find(std::string_view key, const Shared& share = alone) const;
  // The tensor must be there with this shape.
  TensorView require(std::string_view key, std::span<const std::int64_t> shape,
                     const Shared& share = alone) const;
  // For a part of a GGUF weight, this is the tensor whose blocks have the part.
  std::optional<StoredTensor> find_stored(std::string_view key) const;
  // What is odd but harmless (files that will not be read), for the user to see.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ac
