list(APPEND runtime_sources
  measure/bandwidth.cpp
  measure/statistics.cpp
  measure/sweep.cpp
  measure/traffic.cpp)
