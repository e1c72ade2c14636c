// What one rendering may take: steps of work, live bytes of values, and nesting. A template is a
// program from a stranger, so each of these has an end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ac::jinja {

struct Limits {
  std::size_t steps = 50'000'000;
  std::size_t bytes = std::size_t{256} << 20;
  int depth = 1000;  // of calls, loops and expressions within each other
};

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  void work(std::size_t steps);  // refuses when none are left
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) { live_ -= bytes; }
  void enter();
  void leave() { --depth_; }

  // The meter of this thread's rendering; null outside of one.
  static Meter* current();

  class Use {  // makes a meter the current one
   public:
    explicit Use(Meter& meter);
    ~Use();
    Use(const Use&) = delete;

   private:
    Meter* before_;
  };

 private:
  const Limits limits_;
  std::size_t done_ = 0, live_ = 0;
  int depth_ = 0;
};

// Memory that a value holds for as long as this object lives.
class Charge {
 public:
  explicit Charge(std::size_t bytes);
  ~Charge();
  Charge(const Charge&) = delete;

 private:
  Meter* meter_;
  std::size_t bytes_;
};

// One level of nesting of the current rendering.
class Nested {
 public:
  Nested() : meter_(Meter::current()) {
    if (meter_ != nullptr) meter_->enter();
  }
  ~Nested() {
    if (meter_ != nullptr) meter_->leave();
  }
  Nested(const Nested&) = delete;

 private:
  Meter* meter_;
};

// So much work in the current rendering.
void work(std::size_t steps);

// Text that grows: its memory and the work of copying are counted as it does.
class TextBuilder {
 public:
  TextBuilder() : meter_(Meter::current()) {}
  ~TextBuilder() {
    if (meter_ != nullptr) meter_->give_back(taken_);
  }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator+=(std::string_view more);
  TextBuilder& operator+=(char more) { return *this += std::string_view(&more, 1); }
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  Meter* meter_;
  std::size_t taken_ = 0;
  std::string text_;
};

}  // namespace ac::jinja
