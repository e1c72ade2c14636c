#include "runtime/opening.h"

#include <charconv>

#include "base/error.h"
#include "base/warning.h"
#include "runtime/fingerprint.h"
#include "runtime/packages.h"

namespace ac {

std::unique_ptr<Device> open_device(const std::string& name, const std::string& target) {
  const std::string which = name.empty() ? (target == "host" ? "host" : "cuda") : name;
  if (which == "host") return open_host_device();
  if (which == "cuda") return open_cuda_device();
  if (which.starts_with("cuda:")) {
    int index = 0;
    const char* const end = which.data() + which.size();
    const auto [at, error] = std::from_chars(which.data() + 5, end, index);
    if (error == std::errc() && at == end) return open_cuda_device(index);
  }
  wrong_usage("the device \"{}\" is none of host, cuda and cuda:NUMBER", which);
}

std::string choose_package(const std::string& package, const std::string& device) {
  const Packages packages = packages_in(package);
  if (packages.empty()) return package;
  const int sm = device == "host" ? 0 : open_device(device, "sm_")->info().sm;
  const std::string target = target_for(sm, packages);
  if (target.empty()) {
    std::string known;
    for (const auto& [name, path] : packages) known += (known.empty() ? "" : ", ") + name;
    wrong_usage("{} has packages for {}, and none for {}", package, known,
                sm == 0 ? "the host" : fmt::format("sm_{}", sm));
  }
  return packages.at(target).string();
}

std::filesystem::path build_for(const Device& device, const KernelSource& source) {
  const int sm = device.info().sm;
  const Target target =
      sm > 0 ? Target{Target::cuda, fmt::format("sm_{}", sm)} : Target{Target::host, {}};
  const BuildResult built =
      KernelBuilder(builder_options(read_environment())).build(source, target);
  if (const auto* failure = std::get_if<CompileFailure>(&built))
    job_failed("the kernels \"{}\" do not compile for {}:\n{}", source.entry, device.name(),
               failure->log);
  return std::get<Artifact>(built).file;
}

EngineOpening::Opened EngineOpening::open(const std::string& given, bool with_random,
                                          std::unique_ptr<Device> known) const {
  const std::string package = choose_package(given, device);
  Opened opened = open_device_for(package, with_random, std::move(known));
  reopen(package, opened);
  return opened;
}

EngineOpening::Opened EngineOpening::open_for(std::int64_t sequences, const std::string& given,
                                              std::unique_ptr<Device> known) const {
  const std::string package = choose_package(given, device);
  Opened opened = open_device_for(package, false, std::move(known));
  load(package, sequences, opened);
  return opened;
}

EngineOpening::Opened EngineOpening::open_device_for(const std::string& package, bool with_random,
                                                     std::unique_ptr<Device> known) const {
  Opened opened;
  opened.device =
      known ? std::move(known) : open_device(device, read_program(PackageFiles(package)).target);
  if (with_random || random_weights)
    opened.random =
        std::make_unique<RandomValues>(*opened.device, build_for(*opened.device, random_source()));
  return opened;
}

void EngineOpening::reopen(const std::string& package, Opened& opened) const {
  opened.engine.reset();
  load(package, sequences, opened);
  opened.engine = std::make_unique<Engine>(opened.program);
}

void EngineOpening::load(const std::string& package, std::int64_t sequences, Opened& opened) const {
  opened.program.reset();  // there may be no room for two
  EngineOptions options;
  options.checkpoint = checkpoint;
  options.on_warning = [](const std::string& warning) { warn("{}", warning); };
  options.records = records, options.overlaps = overlaps;
  options.sequences = sequences;
  if (random_weights) options.weights = ac::random_weights(*opened.random, *random_weights);
  listen(options);
  opened.program = std::make_shared<LoadedProgram>(*opened.device, package, std::move(options));
}

std::string EngineOpening::identity_of(const Engine& engine) const {
  const std::string weights_of = random_weights
                                     ? fmt::format("random weights of {}", *random_weights)
                                     : identity_of_weights(engine.program(), checkpoint);
  return fmt::format("{} with {}", engine.files().digest(), weights_of);
}

}  // namespace ac
