// A library in NVML's place that has a few of its functions only, as those of old drivers: one GPU, of which it tells
// name and memory. Made also to take its time (SHARDSCOPE_SLOW): nvmlInit_v2 then returns after seconds.
#include <chrono>
#include <cstring>
#include <thread>

#include <nvml.h>

extern "C" {

nvmlReturn_t nvmlInit_v2() {
#ifdef SHARDSCOPE_SLOW
  std::this_thread::sleep_for(std::chrono::seconds(3));
#endif
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t* device) {
  static int gpu = 0;
  *device = reinterpret_cast<nvmlDevice_t>(&gpu);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned) {
  std::strcpy(name, "Tesla K40m");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  memory->total = 12'079'136'768;
  return NVML_SUCCESS;
}

}  // extern "C"
