// Mutants of a kernel header: systematic small edits, at every place where they apply. The source
// is read as tokens, not parsed, so that some mutants do not compile; whoever builds them leaves
// those out. What only one side compiles (whatever stands under #if) has no mutants, nor have
// plans' legality (static_assert) and template headers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ac::mutants {

struct Mutant {
  // "gemv.cuh#8f31a2c4.0:boundary@17": the file, a hash of the line's text, which line of that text
  // it is, the operator, and where in the line. It holds as long as the line's text does.
  std::string id;
  std::string file;    // "gemv.cuh", of kernels/
  std::string change;  // the operator: "boundary"
  int line = 0, last_line = 0;
  std::size_t at = 0, length = 0;  // what is replaced
  std::string replacement;         // with as many line breaks
};

std::vector<Mutant> mutants_of(const std::string& file, std::string_view text);
std::string mutated(std::string_view text, const Mutant& mutant);
// "row >= n -> row > n", for people: the line before and after.
std::string describe(std::string_view text, const Mutant& mutant);

}  // namespace ac::mutants
