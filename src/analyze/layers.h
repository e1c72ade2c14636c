// The layers of a step: what lies between values that all that follows goes through.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "analyze/region.h"

namespace ac {

// The compute nodes of each layer, in order. A layer begins with what leads to an op that writes a
// state, and the last one ends where the others do. None where there are fewer than two layers, or
// they end in different ways.
using Layer = std::vector<NodeId>;
std::vector<Layer> layers_of(const UseDef& uses);

// Layers that follow each other as one region, or why they are none. If all layers are alike, the
// region's signature names their number and the signature of one.
std::variant<Region, Boundary> region_of_layers(const UseDef& uses, std::span<const Layer> layers);
// The first ones of a region of layers.
Region first_layers(const StepGraph& step, const Region& region, int count);

}  // namespace ac
