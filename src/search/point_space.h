// What search strategies look for the best of: points with families, named fields and a predicted
// cost. A region's candidates are one kind (ListedSpace, as recorded tables are), the schedules of
// a whole step, which are too many to list, another (ProductSpace). Strategies see points as
// numbers, and the transformations that lead from one to the next; they know of no kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "search/random.h"

namespace ac::search {

// Of a plan: a number, or the name of one of several ways.
struct Field {
  std::string name;
  std::variant<std::int64_t, std::string> value;
  bool operator==(const Field&) const = default;
};

// How one site is done.
struct SitePlan {
  std::string site;  // empty where there is only one
  std::string family;
  std::vector<Field> fields;
  bool operator==(const SitePlan&) const = default;
};

struct Point {
  std::string id;  // canonical: equal plans have equal ids
  std::vector<SitePlan> parts;
  double predicted = 0;  // microseconds
};

class PointSpace {
 public:
  virtual ~PointSpace() = default;

  virtual std::uint64_t size() const = 0;  // a bound where there are too many to count
  // The point with this index, below size(). Two indices may give one point.
  virtual int at(std::uint64_t index) const = 0;
  // One at random: of those that are listed, or a choice of each site, all alike likely.
  virtual int draw(Random& random) const = 0;
  virtual std::string id(int point) const = 0;
  virtual std::optional<int> find(const std::string& id) const = 0;
  virtual double predicted(int point) const = 0;
  // How each of its sites is done.
  virtual std::vector<SitePlan> parts(int point) const = 0;
  // Whether any way to do any of its sites is so.
  virtual bool has_plan(const std::function<bool(const SitePlan&)>& is_so) const = 0;
  // What is predicted of each of those, in all its uses; none: it is not known apart.
  virtual std::vector<double> predicted_parts(int) const { return {}; }
  // The best by what is predicted.
  virtual int start() const = 0;
  // Where single transformations lead: another family, another value of one field, and then the
  // member of the space that differs least. Each point once.
  virtual const std::vector<int>& neighbours(int point) const = 0;
  // Some of each parent's traits, and then the member that differs least.
  virtual int cross(int mother, int father, Random& random) const = 0;
  // From 1 for equal points to 0 for points that have nothing in common: site by site how near they
  // are, on average over the sites. What a schedule takes is nearly a sum over its sites.
  virtual double likeness(int a, int b) const = 0;
  // Whether what is predicted of all points can be compared point by point.
  virtual bool is_listed() const = 0;
};

// All points are known. May be shared between threads.
class ListedSpace : public PointSpace {
 public:
  // At least one point; ids differ, and all points have the same sites.
  explicit ListedSpace(std::vector<Point> points);

  std::uint64_t size() const override { return points_.size(); }
  int at(std::uint64_t index) const override { return static_cast<int>(index); }
  int draw(Random& random) const override { return at(random.below(size())); }
  std::string id(int point) const override { return get(point).id; }
  std::optional<int> find(const std::string& id) const override;
  double predicted(int point) const override { return get(point).predicted; }
  std::vector<SitePlan> parts(int point) const override { return get(point).parts; }
  bool has_plan(const std::function<bool(const SitePlan&)>& is_so) const override;
  int start() const override { return start_; }
  const std::vector<int>& neighbours(int point) const override;
  int cross(int mother, int father, Random& random) const override;
  double likeness(int a, int b) const override;
  bool is_listed() const override { return true; }

  const std::vector<Point>& points() const { return points_; }
  const Point& get(int point) const { return points_[static_cast<std::size_t>(point)]; }

 private:
  // A family, or a field, of one site. Values are codes; a field that a family lacks has none.
  struct Trait {
    std::size_t site = 0;
    bool is_number = false;
    std::vector<double> places;  // of each code, from 0 to 1
  };
  static constexpr int kAbsent = -1;

  void find_traits();
  std::vector<int> find_neighbours(int point) const;
  void find_lengths();
  const int* traits(int point) const {
    return codes_.data() + static_cast<std::size_t>(point) * traits_.size();
  }
  double difference(std::size_t trait, int a, int b) const;
  // A sum over traits, each at most 1.
  double distance(const int* a, const int* b) const;

  std::vector<Point> points_;
  std::unordered_map<std::string, int> by_id_;
  std::vector<Trait> traits_;
  std::vector<int> codes_;       // of point after point
  std::vector<double> lengths_;  // of each site: how far apart two points are on average
  // Of the points that were asked about: of a large space, a search sees few.
  struct Neighbours {
    std::once_flag found;
    std::vector<int> points;
  };
  std::unique_ptr<Neighbours[]> neighbours_;
  int start_ = 0;
};

// One way to do each site of a step. Sites may stand for a choice that others only follow from: the
// parts that a fused kernel is split into are there if the site that fuses them says so.
struct Site {
  std::string name;
  double uses = 1;  // times that a step runs it
  std::vector<Point> choices;
  // Whether it is there, by the choices of the sites before it; none: always.
  std::function<bool(const std::vector<int>& choices)> only_if;
};

// Points are interned as they are met, so that one object is for one thread and one search.
class ProductSpace : public PointSpace {
 public:
  explicit ProductSpace(std::vector<Site> sites);

  std::uint64_t size() const override { return size_; }
  int at(std::uint64_t index) const override;
  int draw(Random& random) const override;
  // "site=plan site=plan": of the sites that are there.
  std::string id(int point) const override;
  std::optional<int> find(const std::string& id) const override;
  double predicted(int point) const override;
  // Of the sites that are there.
  std::vector<SitePlan> parts(int point) const override;
  bool has_plan(const std::function<bool(const SitePlan&)>& is_so) const override;
  std::vector<double> predicted_parts(int point) const override;
  int start() const override;
  const std::vector<int>& neighbours(int point) const override;
  int cross(int mother, int father, Random& random) const override;
  double likeness(int a, int b) const override;
  bool is_listed() const override { return false; }

  const std::vector<Site>& sites() const { return sites_; }
  // The choice of each site; -1 for one that is not there.
  const std::vector<int>& choices(int point) const {
    return schedules_[static_cast<std::size_t>(point)];
  }
  int point(std::vector<int> choices) const;
  // Each point once; nothing if there are more than so many.
  std::optional<std::vector<int>> all(std::size_t limit) const;

 private:
  bool is_there(std::size_t site, const std::vector<int>& choices) const;

  std::vector<Site> sites_;
  std::vector<ListedSpace> spaces_;  // of each site
  // For each site, how alike each two of its choices are, times the site's share of what is
  // predicted.
  std::vector<std::vector<double>> likeness_;
  std::uint64_t size_ = 1;
  mutable std::vector<std::vector<int>> schedules_;
  mutable std::map<std::vector<int>, int> known_;
  mutable std::unordered_map<int, std::vector<int>> neighbours_;
};

}  // namespace ac::search
