#include "text/template/meter.h"

#include "text/template/value.h"

namespace ac::jinja {
namespace {
thread_local Meter* g_current = nullptr;
}  // namespace

void Meter::work(std::size_t steps) {
  done_ += steps;
  if (done_ > limits_.steps)
    fail("the template takes more than {} steps: it may not end", limits_.steps);
}

void Meter::take(std::size_t bytes) {
  if (bytes > limits_.bytes - live_)
    fail("the template needs more than {} MiB of memory", limits_.bytes >> 20);
  live_ += bytes;
}

void Meter::enter() {
  if (depth_ >= limits_.depth)
    fail("the template nests calls and expressions more than {} deep", limits_.depth);
  ++depth_;
}

Meter* Meter::current() { return g_current; }

Meter::Use::Use(Meter& meter) : before_(g_current) { g_current = &meter; }
Meter::Use::~Use() { g_current = before_; }

Charge::Charge(std::size_t bytes) : meter_(g_current), bytes_(bytes) {
  if (meter_ != nullptr) meter_->take(bytes_);
}

Charge::~Charge() {
  if (meter_ != nullptr) meter_->give_back(bytes_);
}

TextBuilder& TextBuilder::operator+=(std::string_view more) {
  if (meter_ != nullptr) {
    meter_->work(1 + more.size() / 64);
    meter_->take(more.size());
    taken_ += more.size();
  }
  text_ += more;
  return *this;
}

void work(std::size_t steps) {
  if (g_current != nullptr) g_current->work(steps);
}

}  // namespace ac::jinja
