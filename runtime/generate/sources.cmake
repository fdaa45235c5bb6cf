list(APPEND runtime_sources
  generate/generate.cpp
  generate/sampler.cpp)
