// How it was measured, with what, and where.
Report.sections.push(() => {
  const {el} = Page;
  const {report} = Report;
  const protocol = report.protocol || {};
  const workload = report.workload || {};
  const section = Page.section("protocol", "How it was measured");
  const named = (value) => (value === true ? "yes" : value === false ? "no" : value);
  section.append(Page.facts([
    [
      "warm-up",
      protocol.warmup_generations === null ? `at least ${protocol.least_warmup_generations} generations, until steady` :
                                             Page.counted(protocol.warmup_generations || 0, "generation")
    ],
    ["every warm-up became steady", named(protocol.steady)],
    [
      "measured generations",
      protocol.iterations === null ? `at least ${protocol.least_generations}, until the median is known to within ${
                                         Page.percent(protocol.noise_bound)}` :
                                     protocol.iterations
    ],
    ["stop rule", protocol.stop_rule], ["order", protocol.order], ["visits of each degree", protocol.passes],
    ["timer", protocol.timer], ["percentiles", protocol.percentile_method], ["prompts", workload.prompt],
    ["arrival", workload.arrival], ["seed", workload.seed], ["all-reduce", protocol.allreduce],
    ["activations", protocol.activation_dtype], ["captured graphs", named(protocol.graphs)],
    ["key of comparable reports", report.comparable_key]
  ]));
  section.append(el("p", {class: "how"}, "Command: ", el("code", {}, (report.argv || []).join(" "))));
  const options = Object.entries(report.options || {});
  if (options.length > 0)
    section.append(Page.details(
        "Every option in effect",
        Page.table([{name: "option"}, {name: "value"}], options.map(([name, value]) => [`--${name}`, String(value)]))));
});

Report.sections.push(() => {
  const {el} = Page;
  const {report} = Report;
  const environment = report.environment || {};
  const model = report.model || {};
  const section = Page.section("environment", "Model and environment");
  const named = (value) => (value === true ? "yes" : value === false ? "no" : value);
  const quantisation = model.quantisation || {};
  const bytesOf = (list) =>
      Object.entries(list || {}).map(([name, value]) => `${name} ${Page.bytes(value)}`).join(", ");
  section.append(el("h3", {}, "Model"), Page.facts([
    ["name", model.name], ["architecture", model.architecture], ["parameters", Page.figure(model.parameters)],
    ["layers", model.layers_cut ? `${model.layers} of ${model.layers_in_file}` : model.layers],
    ["hidden, FFN", `${model.hidden}, ${model.ffn}`],
    ["query and KV heads", `${model.query_heads}, ${model.kv_heads} of ${model.head_dim}`], ["vocabulary", model.vocab],
    ["weights", model.kind], ["quantisation", quantisation.scheme],
    [
      "bits a weight",
      model.bits_per_weight_effective === undefined ? null : Page.figure(model.bits_per_weight_effective)
    ],
    ["KV cache", model.kv_dtype], ["bytes", model.bytes ? bytesOf(model.bytes.by_class) : null],
    ["identity", model.identity]
  ]));
  section.append(el("h3", {}, "Machine"), Page.facts([
    ["host", environment.host], ["machine", environment.machine],
    ["virtual machine", named(environment.virtual_machine)], ["container", environment.container],
    ["CPU", environment.cpu], ["sockets", environment.sockets], ["cores we may use", environment.allowed_cores],
    ["CPU quota", environment.cpu_quota_cores],
    ["last-level cache", environment.last_level_cache_bytes ? Page.bytes(environment.last_level_cache_bytes) : null],
    ["memory", environment.memory_bytes ? Page.bytes(environment.memory_bytes) : null],
    [
      "clock",
      environment.highest_mhz ?
          `${Page.figure(environment.lowest_mhz)} to ${Page.figure(environment.highest_mhz)} MHz` :
          null
    ],
    ["governor", environment.governor], ["turbo", named(environment.turbo)],
    ["load average at the start", environment.load_average], ["kernel", environment.kernel],
    ["distribution", environment.distribution]
  ]));
  section.append(el("h3", {}, "Program"), Page.facts([
    ["version", environment.version], ["commit", environment.commit], ["compiler", environment.compiler],
    ["build", environment.build_type], ["backend", environment.backend], ["launcher", environment.launcher],
    ["MPI", environment.mpi], ["CUDA", environment.cuda], ["NCCL", environment.nccl],
    ["threads a rank", environment.threads_per_rank],
    ["peak bandwidth given", environment.peak_gb_per_s ? `${environment.peak_gb_per_s} GB/s` : null],
    ["compute peak given", environment.peak_tflops ? `${environment.peak_tflops} TFLOP/s` : null],
    ["libraries", Object.entries(environment.libraries || {}).map(([name, version]) => `${name} ${version}`).join(", ")]
  ]));
  const cores = (list) => (list || []).join(", ");
  const details = [];
  if ((environment.devices || []).length > 0) {
    details.push(Page.details(
        "Devices",
        Page.table(
            [
              {name: "rank"}, {name: "device"}, {name: "PCI"}, {name: "memory"}, {name: "SMs"},
              {name: "compute capability"}
            ],
            environment.devices.map(
                (device) =>
                    [device.rank, device.name, device.pci_bus_id,
                     device.memory_bytes === null ? null :
                                                    {value: device.memory_bytes, text: Page.bytes(device.memory_bytes)},
                     device.multiprocessors, device.compute_capability]))));
  }
  if ((environment.ranks || []).length > 0) {
    details.push(Page.details(
        "Ranks and their cores",
        Page.table(
            [{name: "rank"}, {name: "host"}, {name: "device"}, {name: "cores"}, {name: "the launcher's mask"}],
            environment.ranks.map(
                (rank) => [rank.rank, rank.host, rank.device, cores(rank.cores), cores(rank.launcher_cores)]))));
  }
  const variables = Object.entries(environment.variables || {});
  if (variables.length > 0)
    details.push(Page.details("Environment variables", Page.table([{name: "name"}, {name: "value"}], variables)));
  section.append(...details);
  Page.root.append(
      el("p", {class: "foot"},
         `shardscope ${environment.version || "of an unknown version"}, schema ${
             report.schema}. The whole report stands in this file, in the element "data-report".`));
});

Report.show(Report.views[0] || {placement: null, prompt: 0, output: 0, kind: null, together: false});
