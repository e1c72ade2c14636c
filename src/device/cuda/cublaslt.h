// cuBLASLt as a library that is loaded at run time, when a product is first asked for, with our own
// declarations of the few functions that we call. Names, values and layouts are fixed by its ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver.h"

namespace ac::cuda {

struct BlasAlgorithm {
  std::uint64_t data[8];
};

struct BlasProposal {
  BlasAlgorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(BlasProposal) == 96);

// Handles are opaque pointers.
using BlasHandle = struct BlasHandleStruct*;
using BlasProduct = struct BlasProductStruct*;
using BlasLayout = struct BlasLayoutStruct*;
using BlasPreference = struct BlasPreferenceStruct*;

enum BlasType { real_f32 = 0, real_f16 = 2, real_bf16 = 14 };
constexpr int kBlasComputeFloat32 = 68;
constexpr std::int32_t kBlasTranspose = 1;
constexpr int kBlasEpilogueBias = 4;
// Partial sums of a split K are added in float32.
constexpr std::uint32_t kBlasReduceInFloat32 = 2;

enum class BlasProductAttribute : int { transpose_a = 3, epilogue = 7, bias = 8 };
enum class BlasPreferenceAttribute : int {
  workspace_bytes = 1,
  reduction = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};

// Every function gives a status, 0 for success, but those that ask for versions and texts.
struct CublasLt {
  std::string file;
  std::size_t (*version)();
  const char* (*status_name)(int);
  int (*create)(BlasHandle*);
  int (*destroy)(BlasHandle);
  int (*create_product)(BlasProduct*, int compute, int scale_type);
  int (*destroy_product)(BlasProduct);
  int (*set_product)(BlasProduct, BlasProductAttribute, const void*, std::size_t);
  int (*create_layout)(BlasLayout*, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t pitch);
  int (*destroy_layout)(BlasLayout);
  int (*create_preference)(BlasPreference*);
  int (*destroy_preference)(BlasPreference);
  int (*set_preference)(BlasPreference, BlasPreferenceAttribute, const void*, std::size_t);
  int (*propose)(BlasHandle, BlasProduct, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d,
                 BlasPreference, int wanted, BlasProposal*, int* found);
  int (*check)(BlasHandle, BlasProduct, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d,
               const BlasAlgorithm*, BlasProposal*);
  int (*multiply)(BlasHandle, BlasProduct, const void* alpha, const void* a, BlasLayout,
                  const void* b, BlasLayout, const void* beta, const void* c, BlasLayout, void* d,
                  BlasLayout, const BlasAlgorithm*, void* workspace, std::size_t, Stream);

  // Such as "13.1.0".
  std::string version_text() const;
  // Throws Fault::job_failed if the status is one of failure, saying what was being done.
  void require(int status, const std::string& doing) const;
};

// Throws Fault::job_failed, saying where it was looked for, where there is none that is new enough.
const CublasLt& cublaslt();

}  // namespace ac::cuda
