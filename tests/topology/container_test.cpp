// Kinds of containers by their marks in made-up file systems.
#include "topology/container.hpp"

#include <catch2/catch.hpp>

#include "tests/topology/fake_root.hpp"
#include "topology/system.hpp"

namespace shardscope::topology {
namespace {

using test::FakeRoot;

TEST_CASE("container_kind: each kind by the mark that it leaves") {
  struct Mark {
    const char* file;
    const char* text;
    const char* kind;
  };
  for (const Mark& mark :
       {Mark{"/.dockerenv", "", "docker"}, Mark{"/run/.containerenv", "", "podman"},
        Mark{"/run/systemd/container", "lxc\n", "lxc"},
        Mark{"/var/run/secrets/kubernetes.io/serviceaccount/token", "", "kubernetes"},
        Mark{"/.singularity.d/env/01-base.sh", "", "apptainer"}, Mark{"/singularity", "", "apptainer"},
        Mark{"/proc/self/cgroup", "4:memory:/docker/0123abcd\n", "docker"},
        Mark{"/proc/self/cgroup", "0::/system.slice/docker-0123.scope\n", "docker"},
        Mark{"/proc/self/cgroup", "0::/user.slice/libpod-0123.scope/container\n", "podman"},
        Mark{"/proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n", "kubernetes"},
        Mark{"/proc/self/cgroup", "3:cpu:/\n0::/lxc.payload.box/init.scope\n", "lxc"}}) {
    const FakeRoot root;
    INFO(mark.file << ' ' << mark.text);
    CHECK(container_kind(root.path()).empty());
    root.write(mark.file, mark.text);
    CHECK(container_kind(root.path()) == mark.kind);
    CHECK(probe_system(root.path()).container == mark.kind);
  }
}

TEST_CASE("container_kind: of two marks the inner container's") {
  const FakeRoot root;
  root.write("/.dockerenv", "");
  root.write("/proc/self/cgroup", "0::/kubepods/besteffort/pod1\n");
  CHECK(container_kind(root.path()) == "docker");
  root.make_folder("/var/run/secrets/kubernetes.io");
  CHECK(container_kind(root.path()) == "kubernetes");
  root.make_folder("/.singularity.d");
  CHECK(container_kind(root.path()) == "apptainer");
}

TEST_CASE("container_kind: a host that runs containers is none") {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/system.slice/docker.service\n");
  root.write("/run/systemd/container", "\n");
  root.make_folder("/singularity/images");
  CHECK(container_kind(root.path()).empty());
}

}  // namespace
}  // namespace shardscope::topology
