// Judges a request, also with faults planted in the header of its kernels.
#pragma once

#include <doctest/doctest.h>

#include <csignal>
#include <optional>
#include <string>

#include "admit/judge.h"
#include "admit/request.h"
#include "base/child.h"
#include "base/files.h"
#include "base/temporary_folder.h"

namespace ac::test {

class Court {
 public:
  explicit Court(std::string header) : name_(std::move(header)) {
    BuilderOptions options = builder_options(read_environment());
    header_ = read_file(options.sources / name_, 1 << 20);
    options.cache = folder_.path(), options.jobs = 2;
    builder_.emplace(options);
  }

  // Why it is rejected; empty if it is admitted. A kernel may crash: its process ends then.
  std::string judge(const Request& request) {
    KernelFiles files;
    for (const KernelSource& source : request.sources) {
      const BuildResult result = builder_->build(source, {});
      if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
      files[source.entry] = std::get<Artifact>(result).file;
    }
    const ChildTask task = [&] {
      std::signal(SIGSEGV, SIG_DFL);  // nothing is to be said about it
      const auto rejection = ac::judge(request.trial, files).rejection;
      return rejection ? "rejected: " + rejection->reason : "admitted";
    };
    const ChildResult result = run_in_children({task}, 1, std::chrono::seconds(300)).at(0);
    if (!result.ok()) return result.ended;
    return result.text == "admitted" ? "" : result.text;
  }

  // The same with other text in the header of one of its kernels.
  bool admits(Request request, std::size_t kernel, const std::string& from, const std::string& to) {
    const std::string once = "#pragma once", include = "#include \"" + name_ + "\"";
    std::string header = header_;
    for (const auto& [find, replace] : {std::pair{from, to}, std::pair{once, std::string()}}) {
      const std::size_t at = header.find(find);
      REQUIRE_MESSAGE(at != std::string::npos, find);
      header.replace(at, find.size(), replace);
    }
    std::string& text = request.sources[kernel].text;
    text.replace(text.find(include), include.size(), header);
    return judge(request).empty();
  }

 private:
  TemporaryFolder folder_;
  std::optional<KernelBuilder> builder_;
  const std::string name_;
  std::string header_;
};

}  // namespace ac::test
