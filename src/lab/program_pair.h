// Two programs of one model on one device, given the same tokens, weights and caches: the chosen
// one and that of plain kernels, one an op (package_check.h). Their logits are compared after every
// step. Kernels may crash or hang: for a process of its own.
#pragma once

#include <memory>
#include <optional>

#include "base/conversation.h"
#include "device/device.h"
#include "lab/check_steps.h"
#include "lab/jobs.h"
#include "reference/executor.h"
#include "runtime/random_values.h"
#include "runtime/together.h"

namespace ac {

// How far logits may be from others of the same tokens.
struct LogitBound {
  double mean_square, largest;  // the root of the mean square error, and any single one
};
// By rounding alone, for a model of the type whose step rounds so many results one after the other.
LogitBound rounding_bound(DType dtype, std::int64_t roundings, const std::vector<double>& logits,
                          KvStorage storage = KvStorage::elements);

// How two lists of logits differ.
struct LogitError {
  double mean_square = 0, largest = 0;
  std::size_t where = 0;                       // the largest
  double over(const LogitBound& bound) const;  // > 1: they differ by more
};
LogitError error_of(const std::vector<double>& got, const std::vector<double>& wanted);

class ProgramPair {
 public:
  // Weights that cannot be read are random ones.
  ProgramPair(Device& device, PairJob job);

  // Empty: both are loaded, and the weights are their own.
  const std::string& why_not() const { return why_not_; }
  const std::string& why_random() const { return why_random_; }

  struct Result {
    int compared = 0;
    double worst = 0;  // over its bound
    std::string worst_case;
    std::string fault;                // empty: none
    std::vector<std::string> phases;  // that ran last
  };
  Result run(const CheckStep& step);

 private:
  void open(bool has_random_weights);
  std::vector<std::int64_t> ids(std::int64_t count);
  void fill(Engine& engine);
  void prime_truth();
  void run_after(const CheckStep& step);
  void run_prompt(const CheckStep& step);
  void run_back(const CheckStep& step);
  void run_rows(const CheckStep& step);
  void run_together(const CheckStep& step);
  void run_both(const std::vector<std::int64_t>& tokens, bool decodes);
  using Logits = std::optional<std::vector<double>>;  // nothing where one is not finite, for `why`
  // `truth`: of these tokens, if it is asked for.
  void compare(const std::vector<double>& truth, const std::string& what);
  bool agree(const Logits& got, const std::string& why, const std::vector<double>& truth,
             const std::string& what);
  void compare_with_truth(const std::vector<double>& got, const std::vector<double>& plain,
                          const std::vector<double>& truth, const std::string& what);
  void must_be_chosen(const std::vector<double>& logits, const std::string& what);
  void must_be_the_same(const std::vector<double>& once, const std::string& what);
  void note(double over, const std::string& what);
  bool is_wrong() const { return !result_.fault.empty(); }

  Device& device_;
  const PairJob job_;
  RandomValues random_;
  std::string why_not_, why_random_;
  std::optional<Engine> chosen_, plain_;
  std::int64_t sequences_ = 1;                   // that there is room for
  std::shared_ptr<LoadedProgram> loaded_;        // of the chosen one
  std::vector<std::unique_ptr<Engine>> others_;  // sequences beside the chosen one's
  std::vector<std::vector<std::byte>> weights_;  // that the truth reads
  std::optional<StepExecutor> truth_;
  bool filled_ = false;  // the caches, with random keys and values
  std::uint64_t state_ = 0;
  Result result_;
};

// The first question is how loading went; the others are steps, which results answer.
std::string loaded_question();
struct Loaded {
  std::string why_not, why_random;  // as ProgramPair says
};
Loaded loaded_of(const std::string& line);
std::string line_of(const CheckStep& step);
ProgramPair::Result result_of(const std::string& line);

Conversation::Answer prepare(std::shared_ptr<Device> device, const PairJob& job);

}  // namespace ac
