#include "launch/session.hpp"

#include <algorithm>
#include <cstdio>

#include "launch/command_line.hpp"

namespace shardscope::launch {

Place take_place(const parallel::World& world, std::optional<int64_t> threads) {
  Place place{.host = topology::probe_host()};
  const int64_t usable = place.host.usable_cores();
  if (threads) check_range(*threads, "--threads", 1, 1024);
  place.threads = static_cast<int>(threads.value_or(std::max<int64_t>(1, usable / world.host_size())));
  place.oversubscribed = static_cast<int64_t>(place.threads) * world.host_size() > usable;
  place.cores = topology::cores_for_rank(place.host, world.host_rank(), world.host_size(), place.threads);
  topology::bind_process(place.cores);
  return place;
}

void Session::note(const std::string& line) const {
  if (speaks()) std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace shardscope::launch
