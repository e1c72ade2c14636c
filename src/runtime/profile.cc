#include "runtime/profile.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

namespace ac {
namespace {

constexpr int kRepeats = 7;
constexpr std::size_t kManyLaunches = 64;
// Steps that a GPU is given first, so that it has work while the host asks for each launch.
constexpr int kStepsAhead = 8;

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

// Whether launches differ in nothing but buffers and places in them.
bool are_alike(Launch one, const Launch& other) {
  if (one.pointers.size() != other.pointers.size() || one.maps.size() != other.maps.size())
    return false;
  for (std::size_t i = 0; i < one.pointers.size(); ++i)
    one.pointers[i].buffer = other.pointers[i].buffer,
    one.pointers[i].offset = other.pointers[i].offset;
  for (std::size_t i = 0; i < one.maps.size(); ++i)
    one.maps[i].buffer = other.maps[i].buffer, one.maps[i].offset = other.maps[i].offset;
  return one == other;
}

class Profiler {
 public:
  Profiler(Engine& engine, const Phase& phase, std::int64_t tokens, std::int64_t cached)
      : engine_(engine), phase_(phase), tokens_(tokens), cached_(cached) {}

  std::vector<LaunchTimes> run() {
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < phase_.launches.size(); ++i) {
      const auto known = std::ranges::find_if(groups, [&](const std::vector<std::size_t>& group) {
        return are_alike(phase_.launches[group[0]], phase_.launches[i]);
      });
      if (known == groups.end())
        groups.push_back({i});
      else
        known->push_back(i);
    }
    std::vector<LaunchTimes> times;
    for (const std::vector<std::size_t>& group : groups) {
      LaunchTimes& of = times.emplace_back();
      const Launch& first = phase_.launches[group[0]];
      of.kernel = first.kernel, of.note = phase_.notes[group[0]];
      of.launches = static_cast<std::int64_t>(group.size());
      of.traffic = traffic_of(engine_.program(), first, tokens_, cached_);
      std::vector<std::size_t> many;
      while (many.size() < kManyLaunches) many.insert(many.end(), group.begin(), group.end());
      of.alone = alone(many) / static_cast<double>(many.size());
      std::vector<std::size_t> all, others;
      for (std::size_t i = 0; i < phase_.launches.size(); ++i) {
        all.push_back(i);
        if (!std::ranges::binary_search(group, i)) others.push_back(i);
      }
      of.in_step = difference(all, others) / static_cast<double>(group.size());
    }
    engine_.pretend(cached_);
    return times;
  }

 private:
  using Recording = std::unique_ptr<Device::Recording>;

  Recording record(const std::vector<std::size_t>& launches) {
    return engine_.device().record([&] {
      for (const std::size_t i : launches) engine_.enqueue(phase_.launches[i], tokens_, true);
    });
  }
  // Always from the same position.
  double time(Device::Recording& recording) {
    engine_.pretend(cached_);
    return engine_.device().time([&] { recording.replay(); });
  }
  double alone(const std::vector<std::size_t>& launches) {
    const Recording recording = record(launches);
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kRepeats; ++repeat) seconds.push_back(time(*recording));
    return median(seconds);
  }
  // In turns, as a card that gets warm slows down.
  double difference(const std::vector<std::size_t>& more, const std::vector<std::size_t>& less) {
    const Recording longer = record(more), shorter = record(less);
    time(*longer), time(*shorter);  // the first replay brings the recording to the device
    std::vector<double> differences;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double before = time(*longer);
      differences.push_back(before - time(*shorter));
    }
    return median(differences);
  }

  Engine& engine_;
  const Phase& phase_;
  const std::int64_t tokens_, cached_;
};

// What the blocks of a launch say: [block][round][point], in nanoseconds.
class TakenStamps {
 public:
  TakenStamps(const Launch::Stamps& stamps, std::vector<std::uint64_t> all)
      : points_(stamps.points.size()),
        of_block_(points_ * static_cast<std::size_t>(stamps.rounds)),
        all_(std::move(all)) {}

  // From the point before to this one, in seconds of a round. The first round has no point before
  // its first one, and is left out where there are more.
  LaunchTime::Part part(std::size_t point) const {
    LaunchTime::Part part;
    const std::size_t first = of_block_ > points_ ? points_ : 0;
    double rounds = 0;
    for (std::size_t at = first + point; at < of_block_; at += points_) {
      if (at == 0) continue;
      double sum = 0, least = std::numeric_limits<double>::infinity(), blocks = 0;
      for (std::size_t of = 0; of < all_.size(); of += of_block_, ++blocks) {
        const double taken = static_cast<double>(all_[of + at] - all_[of + at - 1]) * 1e-9;
        sum += taken, least = std::min(least, taken);
      }
      part.seconds += sum / blocks, part.least += least, ++rounds;
    }
    if (rounds > 0) part.seconds /= rounds, part.least /= rounds;
    return part;
  }

 private:
  std::size_t points_, of_block_;
  std::vector<std::uint64_t> all_;
};

// The parts of a launch, in steps in which it says when its blocks come to them.
std::vector<LaunchTime::Part> parts_of(Engine& engine, const std::vector<Launch>& launches,
                                       std::size_t which, std::int64_t cached) {
  Device& device = engine.device();
  const Launch::Stamps& stamps = *launches[which].stamps;
  const auto bytes = static_cast<std::size_t>(bytes_of(stamps, launches[which]));
  const auto memory = device.allocate(bytes);
  device.fill(memory->address(), bytes, 0);
  const Launch with_stamps = stamped(launches[which], memory->address());
  std::vector<std::vector<LaunchTime::Part>> all;
  for (int repeat = -1; repeat < kRepeats; ++repeat) {  // the first one warms up
    engine.pretend(cached);
    for (std::size_t i = 0; i < which; ++i) engine.enqueue(launches[i], 1, true);
    engine.enqueue(with_stamps, 1, true);
    std::vector<std::uint64_t> taken(bytes / sizeof(std::uint64_t));
    device.download(std::as_writable_bytes(std::span(taken)), memory->address());
    if (repeat < 0) continue;
    const TakenStamps of(stamps, std::move(taken));
    std::vector<LaunchTime::Part>& parts = all.emplace_back();
    for (std::size_t point = 0; point < stamps.points.size(); ++point)
      parts.push_back(of.part(point));
  }
  engine.pretend(cached);
  const auto median_of = [&](std::size_t point, double LaunchTime::Part::* what) {
    std::vector<double> values;
    for (const auto& parts : all) values.push_back(parts[point].*what);
    return median(values);
  };
  std::vector<LaunchTime::Part> medians;
  for (std::size_t point = 0; point < stamps.points.size(); ++point)
    medians.push_back({stamps.points[point], median_of(point, &LaunchTime::Part::seconds),
                       median_of(point, &LaunchTime::Part::least)});
  return medians;
}

}  // namespace

std::vector<LaunchTimes> profile(Engine& engine, const Phase& phase, std::int64_t tokens,
                                 std::int64_t cached) {
  return Profiler(engine, phase, tokens, cached).run();
}

std::vector<LaunchTime> launch_by_launch(Engine& engine, const Phase& phase, std::int64_t cached) {
  Device& device = engine.device();
  const std::vector<Launch>& launches = phase.launches;
  std::vector<std::unique_ptr<Device::Mark>> marks;
  for (std::size_t i = 0; i <= launches.size(); ++i) marks.push_back(device.make_mark());
  // All but the last launch, which would move on to the next position.
  std::unique_ptr<Device::Recording> ahead;
  if (device.info().sm > 0)
    ahead = device.record([&] {
      for (std::size_t i = 0; i + 1 < launches.size(); ++i) engine.enqueue(launches[i], 1, true);
    });
  std::vector<std::vector<double>> seconds(launches.size());
  for (int repeat = -1; repeat < kRepeats; ++repeat) {  // the first one warms up
    engine.pretend(cached);
    for (int i = 0; ahead && i < kStepsAhead; ++i) ahead->replay();
    marks[0]->set();
    for (std::size_t i = 0; i < launches.size(); ++i) {
      engine.enqueue(launches[i], 1, false);
      marks[i + 1]->set();
    }
    for (std::size_t i = 0; i < launches.size() && repeat >= 0; ++i)
      seconds[i].push_back(marks[i + 1]->seconds_since(*marks[i]));
  }
  engine.pretend(cached);
  std::vector<LaunchTime> times;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    LaunchTime& time = times.emplace_back(median(seconds[i]));
    if (launches[i].stamps) time.parts = parts_of(engine, launches, i, cached);
  }
  return times;
}

}  // namespace ac
