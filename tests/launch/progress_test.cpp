#include "launch/progress.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace shardscope::launch;
using Catch::Matchers::Contains;

namespace {

/// A clock that stands until it is moved, and what was written.
struct Screen {
  double now = 100;
  std::vector<std::string> writes;

  Progress progress(ProgressMode mode, int width = 80) {
    return {mode, width, [this] { return now; }, [this](const std::string& bytes) { writes.push_back(bytes); }};
  }

  /// The lines that a terminal would show after all writes: "\r" returns, "\x1b[K" erases to the end.
  std::vector<std::string> lines() const {
    std::vector<std::string> shown = {""};
    size_t column = 0;
    for (const std::string& bytes : writes) {
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] == '\r') {
          column = 0;
        } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
          shown.back().resize(column);
          i += 2;
        } else if (bytes[i] == '\n') {
          shown.emplace_back();
          column = 0;
        } else {
          shown.back().resize(std::max(shown.back().size(), column + 1), ' ');
          shown.back()[column++] = bytes[i];
        }
      }
    }
    return shown;
  }
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("progress_mode: bars only on a terminal without a launcher, unless asked for") {
  CHECK(progress_mode("auto", false, true) == ProgressMode::kBars);
  CHECK(progress_mode("auto", true, true) == ProgressMode::kLines);
  CHECK(progress_mode("auto", false, false) == ProgressMode::kLines);
  CHECK(progress_mode("always", true, false) == ProgressMode::kBars);
  CHECK(progress_mode("never", false, true) == ProgressMode::kNever);
}

TEST_CASE("duration_text: the two largest units") {
  CHECK(duration_text(-3) == "0 s");
  CHECK(duration_text(8.4) == "8 s");
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(59.6) == "1 min 0 s");
  CHECK(duration_text(80) == "1 min 20 s");
  CHECK(duration_text(3599) == "59 min 59 s");
  CHECK(duration_text(7500) == "2 h 5 min");
  CHECK(duration_text(7199) == "2 h 0 min");
  CHECK(duration_text(360'000) == "100 h 0 min");
}

TEST_CASE("bar_text: what is done, a bar, how far, and the time left") {
  CHECK(bar_text(0.45, "tp 2, batch 8: generation 7", 80, 90) ==
        "tp 2, batch 8: generation 7                 [#########-----------]  45 %, 1 min 20 s left");
  CHECK(bar_text(0.45, "tp 8, batch 256, 512 + 128: generation 12", 80, 80) ==
        "tp 8, batch 256, 512 + 128: generation 12   [####------]  45 %, 1 min 20 s left");
  CHECK(bar_text(0.45, "tp 2, batch 8: generation 7", std::nullopt, 80) ==
        "tp 2, batch 8: generation 7                 [####------]  45 %");
  CHECK_THAT(bar_text(0.9999, "x", std::nullopt, 90), Contains("[###################-]  99 %"));  // 100 is the end
  CHECK_THAT(bar_text(1, "x", 0, 90), Contains("[####################] 100 %, 0 s left"));
  CHECK_THAT(bar_text(-1, "x", std::nullopt, 90), Contains("[--------------------]   0 %"));
}

TEST_CASE("bar_text: the bar stands still while the words beside it change") {
  for (const int width : {80, 100}) {
    const size_t at = bar_text(0.1, "a", std::nullopt, width).find('[');
    CHECK(bar_text(0.2, std::string(200, 'x'), 3599, width).find('[') == at);
    CHECK(bar_text(1, "loading shards", 5, width).find('[') == at);
  }
}

TEST_CASE("bar_text: never wider than the terminal") {
  for (int width = 0; width <= 120; ++width) {
    for (const double left : {0.0, 59.0, 3599.0, 1e6}) {
      for (const size_t length : {size_t{0}, size_t{1}, size_t{30}, size_t{200}}) {
        const std::string text = bar_text(0.5, std::string(length, 'x'), left, width);
        CAPTURE(width, left, length, text);
        CHECK(text.size() <= static_cast<size_t>(width));
      }
    }
  }
  CHECK_THAT(bar_text(0.5, "tp 2, batch 8: generation 7", 8, 40),
             Contains("tp 2, batch 8") && Contains("50 %, 8 s left"));
}

TEST_CASE("Progress: with never nothing is written") {
  Screen screen;
  {
    Progress progress = screen.progress(ProgressMode::kNever);
    progress.line("loading");
    progress.tick(0.5, "work");
    screen.now += 100;
    progress.tick(0.6, "work");
    progress.clear();
  }
  CHECK(screen.writes.empty());
}

TEST_CASE("Progress: plain lines, one of progress every 15 s at most") {
  Screen screen;
  Progress progress = screen.progress(ProgressMode::kLines);
  progress.line("loading");
  progress.tick(0.1, "warm-up");
  screen.now += 14.9;
  progress.tick(0.2, "warm-up");
  CHECK(screen.lines() == Lines{"loading", ""});
  screen.now += 0.2;  // 15.1 s for a quarter: three times as long is left
  progress.tick(0.25, "generation 3");
  CHECK(screen.lines() == Lines{"loading", "25 %, 45 s left: generation 3", ""});
  progress.tick(0.3, "generation 4");
  CHECK(screen.lines().size() == 3);
  for (const std::string& bytes : screen.writes) CHECK(bytes.find_first_of("\r\x1b") == std::string::npos);
}

TEST_CASE("Progress: a bar is redrawn at most ten times a second, and never falls") {
  Screen screen;
  Progress progress = screen.progress(ProgressMode::kBars);
  progress.tick(0.5, "a");
  CHECK_THAT(screen.lines().back(), Contains("50 %"));
  screen.now += 0.05;
  progress.tick(0.7, "b");
  CHECK(screen.writes.size() == 1);
  screen.now += 0.06;
  progress.tick(0.6, "c");
  CHECK(screen.writes.size() == 2);
  CHECK_THAT(screen.lines().back(), Contains("70 %") && Contains("c"));
  CHECK(screen.lines().size() == 1);
}

TEST_CASE("Progress: time left by the share done so far, unknown at the start") {
  Screen screen;
  Progress progress = screen.progress(ProgressMode::kBars);
  screen.now += 1.9;
  progress.tick(0.5, "a");
  CHECK_THAT(screen.lines().back(), !Contains("left"));
  screen.now += 8.1;
  progress.tick(0.25, "a");  // shown as 50 %: what counts is how far it has come
  CHECK_THAT(screen.lines().back(), Contains("50 %, 10 s left"));

  Screen other;
  Progress slow = other.progress(ProgressMode::kBars);
  other.now += 1000;
  slow.tick(0.019, "a");
  CHECK_THAT(other.lines().back(), !Contains("left"));
}

TEST_CASE("Progress: lines stand above the bar, which is whole again below them") {
  Screen screen;
  {
    Progress progress = screen.progress(ProgressMode::kBars);
    progress.line("loading");
    progress.tick(0.5, "generation 7");
    progress.line("tp 1: 5 ms");
    REQUIRE(screen.lines().size() == 3);
    CHECK(screen.lines()[0] == "loading");
    CHECK(screen.lines()[1] == "tp 1: 5 ms");
    CHECK_THAT(screen.lines()[2], Contains("generation 7") && Contains("50 %"));
  }
  CHECK(screen.lines() == Lines{"loading", "tp 1: 5 ms", ""});  // gone with its owner
}

TEST_CASE("Progress: clear takes the bar away once, and a line after it is bare") {
  Screen screen;
  Progress progress = screen.progress(ProgressMode::kBars);
  progress.tick(0.5, "a");
  progress.clear();
  CHECK(screen.lines() == Lines{""});
  const size_t writes = screen.writes.size();
  progress.clear();
  CHECK(screen.writes.size() == writes);
  progress.line("done");
  CHECK(screen.writes.back() == "done\n");
}
