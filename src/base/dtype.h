// Element types of tensors, and the exact conversions between them and double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ac {

// The last four hold codes and scales of weights (base/weight_format.h): nothing is computed in
// them.
enum class DType : std::uint8_t { f32, f16, bf16, i32, i64, boolean, f8e4m3, u8, i8, f8e8m0 };

std::size_t bytes_of(DType dtype);
bool is_float(DType dtype);
bool is_code(DType dtype);
bool has_nan(DType dtype);
// Printed in graphs: f32 f16 bf16 i32 i64 bool f8e4m3 u8 i8 f8e8m0.
std::string_view short_name(DType dtype);
std::optional<DType> dtype_from_short_name(std::string_view name);
// As PyTorch and configs spell them: float32 float16 bfloat16 int32 int64 bool
// float8_e4m3fn uint8 int8 float8_e8m0fnu.
std::string_view torch_name(DType dtype);
std::optional<DType> dtype_from_torch_name(std::string_view name);

// `element` need not be aligned.
double load_element(DType dtype, const void* element);
// Rounded as a program that computes in float32 stores its results. Need not be aligned.
void store_element(DType dtype, double value, void* to);
// The value that storing in `dtype` would leave (round to nearest even).
double round_to(DType dtype, double value);

}  // namespace ac
