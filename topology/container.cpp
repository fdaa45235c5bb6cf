// Sources: systemd's "The Container Interface" (/run/systemd/container), Apptainer's image layout (/.singularity.d, in
// old images only a file /singularity), Kubernetes "Accessing the API from a Pod" (the mounted service account).
#include "topology/container.hpp"

#include <filesystem>

#include "topology/files.hpp"

namespace shardscope::topology {
namespace {

/// Part of a line in /proc/self/cgroup -> kind. Seen with cgroup version 1, and with version 2 where the container
/// shares the host's cgroup namespace.
struct GroupMark {
  std::string_view part;
  const char* kind;
};
constexpr GroupMark kGroupMarks[] = {
    {"kubepods", "kubernetes"}, {"/libpod-", "podman"}, {"/docker/", "docker"},
    {"/docker-", "docker"},     {"/lxc/", "lxc"},       {"/lxc.payload", "lxc"},
};

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string kind_of_group(const std::string& root) {
  for (const std::string& line : read_lines(root + "/proc/self/cgroup")) {
    for (const GroupMark& mark : kGroupMarks) {
      if (line.find(mark.part) != std::string::npos) return mark.kind;
    }
  }
  return "";
}

}  // namespace

std::string container_kind(const std::string& root) {
  if (path_exists(root + "/.singularity.d") || is_file(root + "/singularity")) return "apptainer";
  if (path_exists(root + "/var/run/secrets/kubernetes.io")) return "kubernetes";
  if (path_exists(root + "/.dockerenv")) return "docker";
  if (path_exists(root + "/run/.containerenv")) return "podman";
  const std::string manager = first_line(root + "/run/systemd/container");
  return manager.empty() ? kind_of_group(root) : manager;
}

}  // namespace shardscope::topology
