#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "build/compiler.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

// What compilers say of a machine that is full, broken or too small (in the C locale).
constexpr std::array kMachineFaults = std::to_array<std::string_view>(
    {"No space left on device", "Disk quota exceeded", "Read-only file system", "File too large",
     "Input/output error", "Cannot allocate memory", "virtual memory exhausted", "out of memory",
     "Killed signal", "Permission denied", "Too many open files", "nvcc fatal",
     "terminated with signal"});

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// The number before `words`, or 0.
int number_before(std::string_view log, std::string_view words) {
  const std::size_t end = log.find(words);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(log.data() + begin, log.data() + end, number);
  return number;
}

// Of the temporary folder nobody should hear: the same kernel has the same log everywhere.
void remove_all_of(const std::string& part, std::string& text) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos;)
    text.erase(at, part.size());
}

}  // namespace

fs::path write_sources(const Compilation& compilation, const char* extension) {
  for (const Header* header : compilation.headers) {
    const fs::path path = compilation.folder / header->name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) job_failed("{}: cannot create: {}", path.parent_path().string(), error.message());
    write_file(path, header->text);
  }
  const fs::path path = compilation.folder / (compilation.source.entry + extension);
  write_file(path, compilation.source.text);
  return path;
}

CompilerOutput run_compiler(const Compilation& compilation, std::vector<std::string> arguments) {
  std::vector<std::string> command = {"env"};
  for (const char* variable :
       {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
        "GCC_EXEC_PREFIX", "LD_RUN_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"}) {
    command.push_back("-u");
    command.push_back(variable);
  }
  command.push_back("LC_ALL=C");
  command.push_back("TMPDIR=" + compilation.folder.string());
  const std::string program = arguments[0];
  command.insert(command.end(), std::make_move_iterator(arguments.begin()),
                 std::make_move_iterator(arguments.end()));
  ProcessResult result = run_process(command, ChildOutput::captured);

  remove_all_of(compilation.folder.string() + "/", result.output);
  std::error_code error;
  if (result.ok() && fs::is_regular_file(compilation.artifact, error))
    return {.ok = true, .log = std::move(result.output)};
  if (result.signal != 0)
    job_failed("{}: killed by signal {} while it compiled {}\n{}", program, result.signal,
               compilation.source.entry, result.output);
  const bool not_started = result.exit_code == 126 || result.exit_code == 127;  // env(1)
  if (not_started || std::ranges::any_of(kMachineFaults, [&](std::string_view fault) {
        return contains(result.output, fault);
      }))
    job_failed("{}: cannot compile {} here:\n{}", program, compilation.source.entry, result.output);
  const bool crashed = contains(result.output, "internal compiler error") ||
                       contains(result.output, "died due to signal");
  const bool blamed = contains(result.output, "error");
  return {.conclusive = blamed && !crashed, .log = std::move(result.output)};
}

void read_resources(CompilerOutput& compiled) {
  compiled.registers = number_before(compiled.log, " registers");
  compiled.spill_bytes = number_before(compiled.log, " bytes spill stores") +
                         number_before(compiled.log, " bytes spill loads");
  compiled.static_shared = number_before(compiled.log, " bytes smem");
}

}  // namespace ac
