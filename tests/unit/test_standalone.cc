#include "emit/standalone.h"

#include <doctest/doctest.h>

#include <fstream>

#include "base/temporary_folder.h"

namespace ac {
namespace {

Program program_of(const std::string& model) {
  Program program;
  program.model = model;
  program.target = "sm_90";
  program.kernels["one"] = "sm_90/one.cubin";
  Launch launch;
  launch.kernel = "one";
  launch.params.resize(24);
  launch.pointers.push_back({8, 0, 0});
  Phase& phase = program.phases.emplace_back();
  phase.name = "decode", phase.launches = {launch, launch};
  phase.notes = {"norm/a at model.layers.0", "norm/a at model.layers.1"};
  return program;
}

}  // namespace

TEST_CASE("Standalone: kernels share their includes, once and at the top") {
  const std::string text = all_kernels(
      {{"one", "#include \"kernels/b.cuh\"\n\nnamespace one {\n}\n"},
       {"two", "#include \"kernels/b.cuh\"\n#include \"kernels/a.cuh\"\n\nnamespace two {\n}"}});
  CHECK(text ==
        "// All kernels of the package, each in a namespace of its own.\n"
        "#include \"kernels/a.cuh\"\n#include \"kernels/b.cuh\"\n\n"
        "namespace one {\n}\n\nnamespace two {\n}");
}

TEST_CASE("Standalone: any model's name makes a library") {
  CHECK(library_name(program_of("meta-llama/Llama-3.2-1B")) == "meta_llama_llama_3_2_1b");
  CHECK(library_name(program_of("2nd; rm -rf /")) == "nd_rm_rf");
  CHECK(library_name(program_of("$()")) == "model");
  CHECK(library_name(program_of("")) == "model");
  CHECK(library_name(program_of(std::string(99, 'x'))).size() == 40);
}

TEST_CASE("Standalone: a wrapper for each kernel says where it is launched") {
  const Program program = program_of("tiny");
  const std::string header = wrapper_header(program), source = wrapper_source(program);
  CHECK(header.find("// one: 24 bytes of parameters, pointers at 8\n//   decode launches 0, 1: "
                    "norm/a\n") != std::string::npos);
  CHECK(header.find("int one_launch(") != std::string::npos);
  CHECK(header.find("unsigned long one_params_bytes(void);") != std::string::npos);
  CHECK(header.find("const char* tiny_error(int error);") != std::string::npos);
  CHECK(source.find("AC_DECLARE(one)") != std::string::npos);

  Program with_map = program;
  with_map.phases[0].launches[0].maps = {{64, 0, 0, 1, 8, 8, 8}};
  CHECK(wrapper_header(with_map).find("pointers at 8, maps at 64\n") != std::string::npos);
}

TEST_CASE("Standalone: only headers that are reached, and nothing is left to fill in") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << text;
  };
  write("kernels/b.cuh", "#include \"kernels/inner.h\"\n");
  write("kernels/inner.h", "");
  write("kernels/other.cuh", "");
  write("kernels/shim/host.cc", "#include \"kernels/shim/host.h\"\n");
  write("kernels/shim/host.h", "");
  const auto files = standalone_files(
      program_of("tiny"), {{"one", "#include \"kernels/b.cuh\"\nint x;\n"}}, folder.path());
  CHECK(files.count("kernels/inner.h") == 1);
  CHECK(files.count("kernels/shim/host.h") == 1);
  CHECK(files.count("kernels/other.cuh") == 0);
  for (const char* name : {"build.sh", "CMakeLists.txt", "README.md"}) {
    CHECK(files.at(name).find('@') == files.at(name).find("$@"));
    CHECK(files.at(name).find("tiny") != std::string::npos);
  }
  CHECK(files.at("build.sh").find("sm_90a") != std::string::npos);

  // What maps are is said where there are some.
  Program with_map = program_of("tiny");
  with_map.phases[0].launches[0].maps = {{64, 0, 0, 1, 8, 8, 8}};
  const auto readme = [&](const Program& program) {
    return standalone_files(program, {}, folder.path()).at("README.md");
  };
  CHECK(readme(with_map).find("cuTensorMapEncodeTiled") != std::string::npos);
  CHECK(readme(program_of("tiny")).find("cuTensorMapEncodeTiled") == std::string::npos);
}

}  // namespace ac
