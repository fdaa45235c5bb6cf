// shardscope doctor: what of launch, host, GPUs and what joins them is in the way, with evidence and remedy.
#include <chrono>
#include <future>
#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/config_file.hpp"
#include "launch/doctor_ranks.hpp"
#include "launch/environment.hpp"
#include "launch/output.hpp"
#include "launch/run_options.hpp"
#include "launch/sweep_options.hpp"
#include "parallel/cuda_library.hpp"
#include "runtime/report/report_file.hpp"

namespace shardscope::launch {
namespace {

constexpr const char* kCommand = "doctor";
constexpr const char* kWhat =
    "looks at launch, cores, memory, MPI, driver, GPUs and what joins them, and says what is wrong and what to do. A "
    "problem that it finds is its result, not its failure: it ends with 0, unless --strict is given";
constexpr const char* kExample = "mpirun -np 2 shardscope doctor";

struct DoctorArguments {
  RunOptions run;
  BackendKind backend = BackendKind::kAuto;
  std::string json;
  bool strict = false;
};

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()                                                                                    //
      ("json", po::value<std::string>()->value_name("FILE"), "write the findings; - for standard output")  //
      ("strict", po::bool_switch(), "end with 1 if there is a problem (warnings are none)");
  add_backend_option(options);
  add_run_options(options);
  return options;
}

DoctorArguments arguments_of(const po::variables_map& values, Session& session) {
  DoctorArguments arguments{.run = run_options(values, session),
                            .backend = backend_kind(values),
                            .json = file_named(values, "json"),
                            .strict = values["strict"].as<bool>()};
  check_inputs({.json = arguments.json, .csv = {}, .resume = {}}, values, {"config"});
  return arguments;
}

/// Takes findings in, and says them as they come where that was asked for.
class Collected {
 public:
  Collected(Session& session, bool verbose) : session_(session), verbose_(verbose) {}

  void add(const Findings& findings) {
    for (const Finding& finding : findings) {
      if (verbose_) session_.note(fmt::format("{}: {}: {}", name_of(finding.verdict), finding.check, finding.evidence));
      all_.push_back(finding);
    }
  }
  const Findings& all() const { return all_; }
  std::string table() const { return doctor_table(all_, static_cast<size_t>(error_columns())); }

 private:
  Session& session_;
  bool verbose_;
  Findings all_;
};

/// What the first rank of each host found there, on all ranks. host: of such a rank.
Findings gather_findings(Session& session, const std::optional<HostFacts>& host, const std::vector<RankFacts>& ranks,
                         const DeviceUse& use, BackendKind backend) {
  Findings own;
  if (host) {
    std::vector<RankFacts> here;
    for (const RankFacts& rank : ranks) {
      if (rank.host == host->host) here.push_back(rank);
    }
    for (const Findings& part : {host_findings(*host, here), mpi_findings(*host, here, session.world.mpi_version()),
                                 gpu_findings(*host, here, backend), health_findings(host->gpus.topology),
                                 variable_findings(*host, here), near_findings(use, here, *host)}) {
      own.insert(own.end(), part.begin(), part.end());
    }
  }
  const std::vector<std::string> all =
      session.world.all_gather_text(runtime::findings_text(own), "findings of the hosts");
  std::vector<std::string> hosts;
  std::vector<Findings> of_hosts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (ranks[rank].host_rank != 0) continue;
    hosts.push_back(ranks[rank].host);
    of_hosts.push_back(runtime::findings_of_text(all[rank]));
  }
  return merged(hosts, of_hosts);
}

/// A driver may take minutes to answer: meanwhile the other ranks see that this one lives.
HostFacts read_own_host(parallel::World& world) {
  constexpr std::chrono::milliseconds kBetweenSigns{100};
  const std::string home = read_environment("HOME").value_or("");
  std::future<HostFacts> reading = std::async(std::launch::async, [&] { return read_host(world.host(), home); });
  while (reading.wait_for(kBetweenSigns) != std::future_status::ready) world.progress("asking the driver");
  return reading.get();
}

/// What everything ended with, for the report's environment.
struct Examined {
  Place place;
  Engine engine;
};

/// Everything, in order. Collective.
Examined examine(const DoctorArguments& arguments, Collected& collected, Session& session) {
  parallel::World& world = session.world;
  std::optional<HostFacts> host;
  if (world.host_rank() == 0) host = read_own_host(world);
  ChosenDevices chosen = choose_devices(session, arguments.backend);
  Examined examined{.place = take_place_near(session, chosen.choice, host), .engine = {}};
  const Place& place = examined.place;
  if (host) host->cpu = place.host;  // without what the user's own mask keeps back
  const std::vector<RankFacts> ranks = gather_ranks(session, place, arguments.backend);
  const auto gpus = host ? static_cast<int>(host->gpus.topology.gpus.size()) : 0;
  collected.add(launch_findings(
      {.launcher = session.launcher.name, .announced_ranks = session.launcher.announced_ranks, .gpus = gpus}, ranks));
  collected.add(gather_findings(session, host, ranks, chosen.use, arguments.backend));
  examined.engine = make_any_engine(session, place, chosen);
  if (host) collected.add(device_findings(chosen.use, ranks, *host));
  const PeerProof proof = prove_peers(session, examined.engine, place);
  if (host) collected.add(peer_findings(proof, *host));
  return examined;
}

void print_results(const DoctorArguments& arguments, const Collected& collected, const std::string& document) {
  if (arguments.json != "-") {
    write_out(collected.table());
    return;
  }
  write_error(collected.table());
  write_out(document);
}

/// Whether CUDA is a stand-in for it, though no device of it could be taken.
bool on_stand_ins(BackendKind backend) {
  if (backend == BackendKind::kCpu) return false;
  const parallel::CudaLibrary* library = parallel::cuda_library().library;
  return library != nullptr && library->emulated;
}

void refuse_problems(const Findings& findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kProblem) continue;
    throw SystemError(counts_text(findings), "--strict", "follow the remedies, the problems' first");
  }
}

void diagnose(const DoctorArguments& arguments, const runtime::Json& in_effect, Session& session) {
  std::optional<runtime::ReportFile> file;
  if (session.speaks() && !arguments.json.empty() && arguments.json != "-") file.emplace(arguments.json);
  Collected collected(session, arguments.run.verbose);
  try {
    const Examined examined = examine(arguments, collected, session);
    const runtime::DoctorReport report{
        .header = {.command = kCommand,
                   .argv = session.argv,
                   .options = in_effect,
                   .environment = capture_environment(session, examined.place, examined.engine)},
        .emulated = on_stand_ins(arguments.backend),
        .findings = collected.all()};
    if (session.speaks()) {
      const std::string document = runtime::document_text(doctor_json(report));
      print_results(arguments, collected, document);
      if (file) file->finish(document);
    }
  } catch (...) {
    // A rank that hangs ends the run; what was found until then may be why.
    if (session.speaks() && !collected.all().empty()) write_error(collected.table());
    throw;
  }
  session.world.barrier("end of the examination");
  if (arguments.strict && session.speaks()) refuse_problems(collected.all());
}

}  // namespace

int doctor_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = option_list();
  const Settings settings = command_settings(options, words, kCommand, session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kCommand, kWhat, options, kExample));
    return 0;
  }
  const DoctorArguments arguments = settings.with_origins([&] { return arguments_of(settings.values, session); });
  diagnose(arguments, settings.in_effect(), session);
  return 0;
}

}  // namespace shardscope::launch
