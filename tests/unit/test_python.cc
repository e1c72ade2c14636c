// Running the Python package, with shell scripts in the place of Python.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "capture/python.h"

using namespace ac;
namespace fs = std::filesystem;

namespace {

fs::path script(const TemporaryFolder& folder, const std::string& body) {
  const fs::path path = folder.path() / "python";
  write_file_atomically(path, "#!/bin/sh\n" + body + "\n");
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

// What the script is called with: -c CODE PACKAGE -o CAPTURE --program FILE [OPTION ...] -- SOURCE.
constexpr const char* kWriteCapture = R"sh(
test "$1" = -c && test "$3" = /the/package && test "$4" = -o && test -n "$5" || exit 9
capture="$5"
test "$6" = --program && test -x "$7" || exit 9
shift 7
if [ "$1" != -- ]; then test "$1 $2" = '--quiet --no-check' && shift 2 || exit 9; fi
test "$1" = -- && test "$2" = '-odd; $(name).py:make' && test -z "$3" || exit 9
cat > "$capture" <<'END'
{"format": "agentcompile.capture", "format_version": 1,
 "model": {"name": "m", "architecture": "Tiny"}, "symbols": {"S": {"min": 1, "max": 8}},
 "roots": {"capture": "."},
 "inputs": [{"name": "ids", "kind": "ids", "dtype": "int64", "shape": [1, "S"]}],
 "parameters": [{"name": "t", "path": "t", "aliases": [], "dtype": "float32", "shape": [9, 7],
                 "root": "capture", "file": "capture.safetensors", "key": "t"}],
 "constants": [],
 "nodes": [{"name": "x", "op": "aten.embedding.default", "module": "",
            "args": {"weight": {"ref": "t"}, "indices": {"ref": "ids"}, "padding_idx": -1,
                     "scale_grad_by_freq": false, "sparse": false},
            "dtype": "float32", "shape": [1, "S", 7]}],
 "outputs": [{"name": "logits", "ref": "x"}], "checked": {"summary": "checked with 3 prompts"}}
END
)sh";

Fault fault_of(const fs::path& interpreter, std::string& message) {
  try {
    capture_with_python("model.py", {interpreter, "/the/package"});
  } catch (const Error& error) {
    message = error.what();
    return error.fault();
  }
  FAIL("no error");
  return Fault::job_failed;
}

}  // namespace

TEST_CASE("a capture by Python lasts as long as its model") {
  const TemporaryFolder folder;
  fs::path weights;
  {
    Model copy;
    {
      const Model model = capture_with_python("-odd; $(name).py:make",
                                              {script(folder, kWriteCapture), "/the/package"});
      CHECK(model.architecture == "Tiny");
      CHECK(model.checked == "checked with 3 prompts");
      copy = model;
    }
    weights = copy.stores.at("capture");
    CHECK(weights.filename() == "capture.safetensors");
    CHECK(fs::exists(weights.parent_path()));
  }
  CHECK(!fs::exists(weights.parent_path()));
}

TEST_CASE("options of a capture by Python, and errors that name its source") {
  const TemporaryFolder folder;
  const PythonCapture python{script(folder, kWriteCapture), "/the/package"};
  CHECK(capture_with_python("-odd; $(name).py:make", python,
                            {.check = CaptureCheck::none, .quiet = true})
            .architecture == "Tiny");
  std::string message;
  const auto broken = script(folder, "echo '{\"format\": 1}' > \"$5\"");
  CHECK(fault_of(broken, message) == Fault::bad_input);
  CHECK(message.starts_with("model.py: not a capture"));
}

TEST_CASE("what becomes of a capture that fails") {
  const TemporaryFolder folder;
  std::string message;
  CHECK(fault_of(script(folder, "exit 3"), message) == Fault::bad_input);
  CHECK(message == "model.py: the capture failed, for the reason above");
  CHECK(fault_of(script(folder, "exit 2"), message) == Fault::wrong_usage);
  CHECK(fault_of(script(folder, "exit 1"), message) == Fault::job_failed);
  CHECK(fault_of(script(folder, "kill -9 $$"), message) == Fault::job_failed);
  CHECK(message.find("killed by signal 9") != std::string::npos);
  CHECK(fault_of("/no/such/python", message) == Fault::job_failed);
  CHECK(message.find("/no/such/python: cannot run it") != std::string::npos);
  CHECK(fault_of(script(folder, "exit 0"), message) == Fault::bad_input);  // wrote nothing
  CHECK(message.find("model.py: cannot open") != std::string::npos);
}

TEST_CASE("a Python without PyTorch") {
  const TemporaryFolder folder;
  try {
    find_python_capture(script(folder, "exit 1"));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::job_failed);
    CHECK(std::string(error.what()).find("cannot import torch and safetensors") !=
          std::string::npos);
    CHECK(std::string(error.what()).find("pip install torch safetensors") != std::string::npos);
  }
}

TEST_CASE("processes") {
  CHECK(run_process({"sh", "-c", "exit 5"}, ChildOutput::discarded).exit_code == 5);
  CHECK(run_process({"sh", "-c", "kill -15 $$"}, ChildOutput::discarded).signal == 15);
  CHECK(run_process({"sh", "-c", "cat; echo $0", "a  b"}, ChildOutput::discarded).ok());
  CHECK_THROWS_AS(run_process({"no-such-program-anywhere"}, ChildOutput::discarded), Error);
}
