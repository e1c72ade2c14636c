// Any bytes as a program.json. What is read must be written and read back the same, and
// its parameters must be bound without leaving their bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "program/program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ac::Program program = ac::program_from_json(ac::parse_json(text, "fuzz"), "fuzz");
    const ac::Json written = ac::to_json(program);
    AC_ASSERT(ac::program_from_json(written, "written") == program);
    const std::vector<void*> addresses(program.buffers.size());
    for (const ac::Phase& phase : program.phases)
      for (const ac::Launch& launch : phase.launches)
        for (const std::int64_t tokens : {phase.min_tokens, phase.max_tokens})
          ac::bind_params(launch, tokens, addresses,
                          [](const ac::kernels::MatrixView&, ac::kernels::TensorMap&) {});
    ac::plan_memory(program);
    ac::verify(program, "planned");
  } catch (const ac::Error& error) {
    AC_ASSERT(error.fault() == ac::Fault::bad_input);
  }
  return 0;
}
