// What a person sees on standard error while a command works: plain lines, or a bar with the time left.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope::launch {

enum class ProgressMode : uint8_t { kNever, kLines, kBars };

/// `auto`: bars on a terminal when started without a launcher (under mpirun isatty is no evidence), else lines.
ProgressMode progress_mode(std::string_view when, bool launched, bool terminal);

/// "tp 2, batch 8: generation 7      [#########-----------]  45 %, 1 min 20 s left" in at most `width` columns.
/// seconds_left nullopt: unknown yet.
std::string bar_text(double fraction, const std::string& doing, std::optional<double> seconds_left, int width);

/// "8 s", "1 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

class Progress {
 public:
  using Now = std::function<double()>;                          // seconds, a steady clock
  using Write = std::function<void(const std::string& bytes)>;  // to standard error, unbuffered
  Progress(ProgressMode mode, int width, Now now, Write write);
  ~Progress();  // takes an unfinished bar away

  /// A line that stays; a bar is redrawn below it. Not shown with kNever.
  void line(const std::string& text);
  /// fraction: 0 to 1, done of the whole, never shown as falling. Bars are redrawn at most ten times a second; with
  /// lines, one is printed every 15 s at most.
  void tick(double fraction, const std::string& doing);
  /// Takes the bar away: the command is done or fails.
  void clear();

 private:
  std::optional<double> seconds_left(double fraction) const;
  ProgressMode mode_;
  int width_;
  Now now_;
  Write write_;
  double start_ = 0;
  double last_shown_ = 0;
  double furthest_ = 0;
  std::string bar_;  // on the screen now
};

}  // namespace shardscope::launch
