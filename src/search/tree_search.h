// Monte Carlo tree search without the Monte Carlo: a node is a point that was measured, an edge a
// transformation with its parameters (set this field to that, take that family). Points that are in
// the tree already are no children (a point is known by its canonical id, whatever led to it). What
// was measured, in logarithms, is backed up along the path; nothing is rolled out. A surrogate of
// all measurements says what an untried transformation promises, advice how much it deserves a try.
#pragma once

#include "search/surrogate.h"

namespace ac::search {

class TreeSearch : public Explorer {
 public:
  TreeSearch(const PointSpace& space, const Ranking& prior);
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;
  void recommend(const Ranking& ranking) override;
  std::optional<int> changes_now() const override;

 private:
  struct Node {
    int point = 0;
    int parent = -1;
    int visits = 0;
    double sum = 0;    // of the logarithms in the subtree
    double best = 0;   // of them
    double share = 0;  // of the parent's attention, from the prior
    bool ok = false;
    bool exhausted = false;
    std::vector<int> children;  // nodes
    std::vector<int> actions;   // points that no node is of yet
    bool has_actions = false;
  };

  std::optional<int> descend();
  // An untried point below the node, or the child to look into, or neither.
  struct Pick {
    std::optional<int> action, child;
    double share = 0;
  };
  Pick pick(Node& node);
  void list_actions(Node& node);
  double value(double log_microseconds) const;
  double weight(int point) const;

  Random random_{1};  // for what no transformation leads to
  Surrogate model_;
  std::unordered_map<int, double> advised_;
  std::vector<Node> nodes_;
  std::unordered_map<int, int> node_of_;  // by point
  int under_ = -1;                        // the node that the last proposal is a child of
  double share_ = 0;
  // Of the logarithms that were measured.
  double measured_ = 0, low_ = 0, high_ = 0, sum_ = 0, squares_ = 0;
};

}  // namespace ac::search
