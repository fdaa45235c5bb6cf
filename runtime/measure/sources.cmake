list(APPEND runtime_sources
  measure/bandwidth.cpp
  measure/comm.cpp
  measure/compute.cpp
  measure/device_room.cpp
  measure/figures.cpp
  measure/group.cpp
  measure/protocol.cpp
  measure/rank_figures.cpp
  measure/residents.cpp
  measure/statistics.cpp
  measure/sweep.cpp
  measure/sweep_options.cpp
  measure/text_cost.cpp
  measure/traffic.cpp
  measure/verdicts.cpp
  measure/visits.cpp)
