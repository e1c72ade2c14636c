// The arms of a study: what is compared over the same points, with the same attempts. Each is a
// strategy, alone or with recorded advice, or a falsifier: the same with advice that was spoilt,
// which says how much of an effect is the advice's content.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "search/strategy.h"
#include "study/advice_file.h"

namespace ac::study {

enum class Spoilt : std::uint8_t { no, shuffled, reversed, other_region, random_points };
std::string_view to_string(Spoilt spoilt);

struct Arm {
  std::string name;  // "tree", "advice+tree", "advice+tree (reversed)"
  std::string strategy;
  enum class Use : std::uint8_t {
    none,
    in_turn,   // with the strategy, one by one
    as_prior,  // in turn, and as the strategy's prior
    first,     // as far as it goes, then the strategy
  };
  Use use = Use::none;
  Spoilt spoilt = Spoilt::no;
  bool uses_seed = false;  // otherwise one repetition (for each reply) says all
};

// The order in which the compiler tried a region's candidates on its own when the study began: the
// best predicted of each outline, then the second best. Without it, advice would get the credit for
// naming plans that differ. It is a strategy of regions only, beside those that search/ has, and so
// is the order of today, in which outlines of rows say more.
constexpr std::string_view kDiverse = "diverse", kCompile = "compile";
inline bool is_of_regions(std::string_view strategy) {
  return strategy == kDiverse || strategy == kCompile;
}

// Of the strategies that are named; with advice, each of those that it serves, and the falsifiers.
std::vector<Arm> arms_of(const std::vector<std::string>& strategies, bool with_advice);

// One search of an arm. `others`: replies for other regions, for the falsifier that takes them.
std::unique_ptr<search::Strategy> start(const Arm& arm, const search::PointSpace& space,
                                        const OrderReply* reply,
                                        const std::vector<const OrderReply*>& others,
                                        std::uint64_t seed);

}  // namespace ac::study
