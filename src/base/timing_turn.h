// Who uses a device, and who measures on it. Measurements must have the device to themselves, and
// an answer must not wait for a whole selection: processes take turns, measurement by measurement.
// Whoever answers goes first.
#pragma once

#include <filesystem>
#include <functional>
#include <utility>

namespace ac {

class TimingTurn {
 public:
  // `file` is what the processes share, one for each device; it is made if it is not there. With
  // none, or where it cannot be made, nobody else is there to wait for.
  explicit TimingTurn(const std::filesystem::path& file = {});
  ~TimingTurn();
  TimingTurn(const TimingTurn&) = delete;
  TimingTurn& operator=(const TimingTurn&) = delete;

  // A turn, until it goes. One object has one at a time.
  class Turn {
   public:
    ~Turn() { give_back(); }
    Turn(Turn&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class TimingTurn;
    explicit Turn(int file) : file_(file) {}
    void give_back() const;
    int file_;
  };

  // Beside others who answer. Waits for a measurement that is being made, and for no other.
  [[nodiscard]] Turn answer();
  // Alone. Waits until nobody answers; `on_wait` hears of it now and then.
  [[nodiscard]] Turn measure(const std::function<void()>& on_wait = {});

 private:
  int file_ = -1;
};

// The file of a device ("host", "cuda") in a cache folder.
std::filesystem::path turns_file(const std::filesystem::path& cache, bool is_gpu);

}  // namespace ac
