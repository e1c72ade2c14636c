#include "capture/python.h"

#include <fmt/ranges.h>

#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "capture/exported.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall =
    "install PyTorch (python3 -m venv .venv && .venv/bin/pip install torch safetensors "
    "transformers), or point AGENTCOMPILE_PYTHON at a Python that has it";

// Finds the modules without importing them: importing torch takes seconds.
constexpr const char* kHasModules =
    "import importlib.util, sys; "
    "sys.exit(0 if all(map(importlib.util.find_spec, ('torch', 'safetensors'))) else 1)";

// Not PYTHONPATH and -m: those would hide the user's PYTHONPATH, and let a folder named
// agentcompile where the user works hide the package.
constexpr const char* kRunPackage =
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('agentcompile.capture', run_name='__main__', alter_sys=True)";

fs::path find_package() {
  std::vector<fs::path> folders;
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error) {
    folders.push_back(program.parent_path() / "../share/agentcompile/python");  // installed
    folders.push_back(program.parent_path() / "../../python");                  // build/release
  }
  folders.push_back(AC_PYTHON_FOLDER);
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "agentcompile/capture.py", error)) return folder.lexically_normal();
  job_failed("the Python package of AgentCompile is missing: it belongs in {}",
             folders[0].lexically_normal().string());
}

// An interpreter that does not even run has no modules either.
bool has_modules(const std::string& interpreter) {
  try {
    return run_process({interpreter, "-c", kHasModules}, ChildOutput::discarded).ok();
  } catch (const Error&) {
    return false;
  }
}

std::string find_interpreter(const fs::path& package) {
  std::vector<std::string> tried;
  for (const fs::path& folder : {fs::path("."), package.parent_path()}) {
    for (const char* name : {".venv", "venv"}) {
      const fs::path interpreter = folder / name / "bin/python";
      std::error_code error;
      if (!fs::exists(interpreter, error)) continue;
      if (has_modules(interpreter)) return interpreter;
      tried.push_back(interpreter);
    }
  }
  if (has_modules("python3")) return "python3";
  tried.push_back("python3");
  job_failed("no PyTorch with safetensors in {}: {}", fmt::join(tried, ", "), kInstall);
}

}  // namespace

PythonCapture find_python_capture(const std::string& wanted) {
  if (!wanted.empty()) {
    if (!has_modules(wanted))
      job_failed("{} cannot import torch and safetensors: {}", wanted, kInstall);
    return {wanted, find_package()};
  }
  fs::path package = find_package();
  std::string interpreter = find_interpreter(package);
  return {std::move(interpreter), std::move(package)};
}

namespace {

// The capture's own file is gone when its user reads the error.
std::string without(std::string text, const std::string& file, const std::string& source) {
  for (std::size_t at = 0; (at = text.find(file, at)) != std::string::npos; at += source.size())
    text.replace(at, file.size(), source);
  return text;
}

}  // namespace

Model capture_with_python(const std::string& source, const PythonCapture& python,
                          const CaptureOptions& options) {
  const auto folder = std::make_shared<TemporaryFolder>();
  const fs::path capture = folder->path() / "capture.json";
  std::vector<std::string> command{python.interpreter, "-c", kRunPackage,
                                   python.package,     "-o", capture};
  std::error_code unknown;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", unknown); !unknown)
    command.insert(command.end(), {"--program", program});
  if (options.quiet) command.emplace_back("--quiet");
  if (options.check == CaptureCheck::thorough) command.emplace_back("--thorough");
  if (options.check == CaptureCheck::none) command.emplace_back("--no-check");
  command.insert(command.end(), {"--", source});
  const ProcessResult result = run_process(command, ChildOutput::to_stderr);
  if (result.signal != 0)
    job_failed("{}: the capture was killed by signal {} ({})", source, result.signal,
               strsignal(result.signal));
  if (!result.ok()) {
    const auto fault = result.exit_code == 2   ? Fault::wrong_usage
                       : result.exit_code == 3 ? Fault::bad_input
                                               : Fault::job_failed;
    throw Error(fault, fmt::format("{}: the capture failed, for the reason above", source));
  }
  try {
    Model model = read_exported(capture);
    model.files = folder;
    return model;
  } catch (const Error& error) {
    throw Error(error.fault(), without(error.what(), capture, source));
  }
}

}  // namespace ac
