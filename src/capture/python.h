// The front end for what only PyTorch can read: runs our Python package, which writes a capture,
// and reads that. The package travels with the program; PyTorch is the user's.
#pragma once

#include <filesystem>
#include <string>

#include "capture/model.h"
#include "capture/options.h"

namespace ac {

struct PythonCapture {
  std::string interpreter;        // has torch and safetensors
  std::filesystem::path package;  // the folder that holds the package `agentcompile`
};

// `wanted` is the interpreter that the user asks for; when empty, the first that has PyTorch of: a
// virtual environment (.venv or venv) in the current folder, one beside the package, and python3
// from PATH. Throws Fault::job_failed, saying what to install, when there is none.
PythonCapture find_python_capture(const std::string& wanted);

// The captured weights live in a temporary folder, which lasts as long as the model or a copy of
// it. The errors of the package go to stderr as they are. This program runs the reference executor
// for the package's check of its capture.
Model capture_with_python(const std::string& source, const PythonCapture& python,
                          const CaptureOptions& options = {});

}  // namespace ac
