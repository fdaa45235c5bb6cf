#include "launch/progress.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace shardscope::launch {
namespace {

constexpr double kRedraw_s = 0.1;
constexpr double kLine_s = 15;
constexpr double kLeastFraction = 0.02;  // below it, or before kLeast_s, a time left would be a guess
constexpr double kLeast_s = 2;
constexpr size_t kCells = 20;
constexpr size_t kFewCells = 10;  // below kWide columns, so that the words beside it fit
constexpr size_t kWide = 90;
constexpr const char* kErase = "\r\x1b[K";  // to the line's start, and erase to its end

std::string percent_text(double fraction) {
  return fmt::format("{} %", static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * 100)));
}

std::string left_text(std::optional<double> seconds_left) {
  return seconds_left ? fmt::format(", {} left", duration_text(*seconds_left)) : "";
}

}  // namespace

ProgressMode progress_mode(std::string_view when, bool launched, bool terminal) {
  if (when == "never") return ProgressMode::kNever;
  if (when == "always") return ProgressMode::kBars;
  return terminal && !launched ? ProgressMode::kBars : ProgressMode::kLines;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  const int64_t minutes = (whole + 30) / 60;
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string bar_text(double fraction, const std::string& doing, std::optional<double> seconds_left, int width) {
  const auto room = static_cast<size_t>(std::max(width, 0));
  const size_t cells = room < kWide ? kFewCells : kCells;
  const auto done = static_cast<size_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(cells));
  const std::string bar = fmt::format("[{:#<{}}{:-<{}}]", "", done, "", cells - done);
  const std::string tail = fmt::format("{:>6}{}", percent_text(fraction), left_text(seconds_left));
  constexpr size_t kWidestTail = sizeof("  45 %, 59 min 59 s left") - 1;
  const size_t fixed = bar.size() + std::max(tail.size(), kWidestTail);  // so that the bar does not move
  constexpr size_t kLeastDoing = 10;
  if (room < fixed + kLeastDoing) {  // a narrow terminal: what is done and how far
    const size_t column = room > tail.size() ? room - tail.size() : 0;
    return (doing.substr(0, column) + tail).substr(0, room);
  }
  const size_t column = room - fixed;
  return fmt::format("{:<{}}", doing.substr(0, column - 1), column) + bar + tail;
}

Progress::Progress(ProgressMode mode, int width, Now now, Write write)
    : mode_(mode), width_(width), now_(std::move(now)), write_(std::move(write)), start_(now_()), last_shown_(start_) {}

Progress::~Progress() {
  try {
    clear();
  } catch (...) {  // a bar that stays is no reason to end the process
  }
}

void Progress::line(const std::string& text) {
  if (mode_ == ProgressMode::kNever) return;
  write_((bar_.empty() ? "" : kErase) + text + "\n" + bar_);
}

void Progress::tick(double fraction, const std::string& doing) {
  if (mode_ == ProgressMode::kNever) return;
  furthest_ = std::max(furthest_, std::min(fraction, 1.0));
  const double now = now_();
  if (mode_ == ProgressMode::kLines) {
    if (now - last_shown_ < kLine_s) return;
    last_shown_ = now;
    write_(fmt::format("{}{}: {}\n", percent_text(furthest_), left_text(seconds_left(furthest_)), doing));
    return;
  }
  if (!bar_.empty() && now - last_shown_ < kRedraw_s) return;
  last_shown_ = now;
  bar_ = bar_text(furthest_, doing, seconds_left(furthest_), width_);
  write_(kErase + bar_);
}

void Progress::clear() {
  if (bar_.empty()) return;
  bar_.clear();
  write_(kErase);
}

std::optional<double> Progress::seconds_left(double fraction) const {
  const double passed = now_() - start_;
  if (fraction < kLeastFraction || passed < kLeast_s) return std::nullopt;
  return passed * (1 - fraction) / fraction;
}

}  // namespace shardscope::launch
