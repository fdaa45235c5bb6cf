// No code: CMake compiles the headers that it lists for this target (tests/CMakeLists.txt) in front of it.
