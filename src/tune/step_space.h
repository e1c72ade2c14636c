// The schedules of a whole step as a space to search (Reasoning Compiler's programs): for each
// distinct neighbourhood how it is fused, and for each part that follows from that, which plan
// computes it. A transformation fuses, splits, changes a family or sets a field.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/cover.h"
#include "search/point_space.h"

namespace ac::tune {

struct StepSpaceOptions {
  std::size_t plans = 4;         // of each part, at most
  std::uint64_t max_points = 0;  // so few choices that there are no more schedules; 0: no bound
};

// What can take the place of a part, at most so many: candidates of its space, -1 for the fallback.
// At least one.
using PartChoices = std::function<std::vector<int>(const CoverPart& part, std::size_t most)>;

// How one part of a schedule is computed.
struct Scheduled {
  const CoverPart* part = nullptr;
  int candidate = -1;  // of its space; -1: the fallback
};

// Adds the spaces of single nodes, and of what chooses the token, so that every part of every cut
// has one.
void complete(const Regions& regions, Plans& plans);

class StepSpace {
 public:
  // Completed plans, which must outlive it, as the regions must.
  StepSpace(const Regions& regions, const Plans& plans, const PartChoices& choices,
            const StepSpaceOptions& options);
  StepSpace(const StepSpace&) = delete;
  StepSpace& operator=(const StepSpace&) = delete;

  const search::ProductSpace& points() const { return *points_; }
  // In an order that can run; parts are valid as long as the space.
  std::vector<Scheduled> schedule(int point) const;
  // What the point's fusions come to for choose_cover(): an option of each neighbourhood.
  std::vector<std::size_t> fusions(int point) const;
  // The point whose parts are these candidates ("": the fallback) by signature, and no others.
  std::optional<int> find(const std::map<std::string, std::string>& selected) const;
  // One of the choices of a site of points().
  struct Choice {
    std::size_t site = 0;
    int index = 0;
  };
  // Of the part with this signature the candidate with this id, of a neighbourhood of the plans one
  // of its options; nothing if it is no choice, whatever the names and numbers are.
  std::optional<Choice> find_candidate(const std::string& signature, const std::string& id) const;
  std::optional<Choice> find_fusion(std::size_t neighbourhood, std::size_t option) const;
  // What the best of a site's choices is predicted to take of a step.
  double microseconds(std::size_t site) const;
  // The point with the same sites as all others, for a recorded table.
  search::Point listed(int point) const;
  // The name of the site whose choices compute the part.
  const std::string& site_of(const CoverPart& part) const;
  // How many sites fuse; they come first.
  std::size_t fusion_sites() const { return alike_.size(); }
  // Every way to fuse: the choice of each of those sites, -1 for one that is not there, and which
  // of the other sites are. Nothing if there are more than so many.
  struct Fused {
    std::vector<int> fusions;
    std::vector<std::size_t> there;
  };
  std::optional<std::vector<Fused>> all_fused(std::size_t limit) const;
  // Of the point's cut, and of all that differ from it by one fusion.
  std::vector<const CoverPart*> likely_parts(int point) const;
  // The parts of all cuts that were looked at so far.
  std::vector<const CoverPart*> met_parts() const;
  // What can take the place of a part with this space: candidates of it.
  std::vector<int> choices_of(int space) const;

 private:
  // Neighbourhoods of different layers with the same options.
  struct Alike {
    Neighbourhood::Kind kind;
    std::string name;
    std::vector<std::size_t> members;  // of Plans::neighbourhoods
    std::vector<std::size_t> options;  // that can be chosen, the best predicted first
    double microseconds = 0;           // of the best, in the whole step
  };
  // The parts that a choice of fusions comes to.
  struct Cut {
    std::vector<const CoverPart*> parts;
    std::vector<bool> claimed;  // of what is alike: whether the choice mattered
    std::set<int> spaces;
  };

  void find_alike();
  void find_spaces();
  void bound(std::uint64_t max_points, std::size_t plans);
  std::uint64_t count(std::uint64_t enough, std::set<int>* reached = nullptr) const;
  search::Site fusion_site(std::size_t alike) const;
  search::Site part_site(int space, const PartChoices& choices);
  const Cut& cut(const std::vector<int>& fusions) const;
  // -1 for the sites of a cut that are not there.
  void each_cut(const std::function<bool(const std::vector<int>& fusions)>& see,
                const std::function<bool(std::size_t site, int option)>& may = {}) const;
  bool may_be_among(const std::map<std::string, std::string>& selected, const Part& part) const;
  std::optional<int> with_plans(const std::vector<int>& fusions,
                                const std::map<std::string, std::string>& plans) const;
  const CoverPart* with_space(const CoverPart* part) const;
  std::string name_of(const CoverPart& part);
  double best_of(const CoverPart& part) const;
  const Space& space(int index) const { return plans_.spaces[static_cast<std::size_t>(index)]; }

  const Regions& regions_;
  const Plans& plans_;
  std::vector<Alike> alike_;
  std::vector<int> alike_of_;           // of each neighbourhood; -1: it has one option or none
  std::map<int, CoverPart> parts_;      // by space: one of those that have it
  std::map<int, double> uses_;          // by space
  std::map<int, std::size_t> limit_;    // of choices, by space
  std::map<std::string, int> names_;    // how often they were given
  std::map<int, std::size_t> site_of_;  // by space
  std::map<int, std::vector<int>> candidates_;  // of each site's choices, by space
  mutable Covers covers_;
  mutable std::map<const CoverPart*, CoverPart> with_space_;
  mutable std::map<std::vector<int>, Cut> cuts_;  // by choice of each that is alike
  std::unique_ptr<search::ProductSpace> points_;
};

}  // namespace ac::tune
