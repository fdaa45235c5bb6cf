# Looks through a document of `shardscope comm`, as json_lines.awk gives it: every sum right, and nothing missing.
#
#   awk -v ranks=N -v ways=LIST -v known=LIST -v dtypes=LIST -v graphs=LIST [-v figures=1] -f comm_rows.awk DOCUMENT
#
# LISTs have blanks between names; graphs: true, false. A row is missing where one of `ways` lacks a data type or a mode. Each
# of `known` must have rows, or a reason why it was left out.
# Prints lines "rows N", "ways NAME…" (that have rows), "left_out NAMES: WHY" (that have none), and with figures "figure NAME
# VALUE" and, for the sizes that decoding has, "fastest BYTES WAY TIME". Or "offence TEXT" with status 1.
function offence(text) {
  print "offence " text
  failed = 1
  exit 1
}
function positive(text) { return text ~ /^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$/ && text + 0 > 0 }
{
  key = $1
  sub(/^[^ ]+ /, "")
  value[key] = $0
}
END {
  if (failed) exit 1
  if (value["schema"] != "shardscope.comm/1") offence("its schema is " value["schema"])
  if (value["complete"] != "true") offence("it is not complete")
  way_count = split(ways, way, " ")
  known_count = split(known, known_way, " ")
  dtype_count = split(dtypes, dtype, " ")
  graph_count = split(graphs, graph, " ")
  for (rows = 0; ("rows." rows ".algorithm") in value; ++rows) {
    row = "rows." rows "."
    name = value[row "algorithm"]
    kind = name SUBSEP value[row "dtype"] SUBSEP value[row "graph"]
    words = value[row "bytes"] " bytes of " value[row "dtype"] " by " name (value[row "graph"] == "true" ? " in graphs" : "")
    if (value[row "wrong"] != "0") offence("wrong sums: " value[row "wrong"] " elements, " words)
    if (value[row "tp"] != ranks) offence("a sum of " value[row "tp"] " ranks, not " ranks ": " words)
    if (!positive(value[row "time_us.p50"])) offence("a time of " value[row "time_us.p50"] " us: " words)
    time[kind, value[row "bytes"]] = value[row "time_us.p50"]
    busbw[kind, value[row "bytes"]] = value[row "busbw_gb_per_s"]
    ++of_kind[kind]
    if (!of_way[name]++) used = used " " name
  }
  for (i = 1; i <= way_count; ++i) {
    for (j = 1; j <= dtype_count; ++j) {
      for (k = 1; k <= graph_count; ++k) {
        if (!of_kind[way[i], dtype[j], graph[k]]) offence("no sum of " dtype[j] " by " way[i] ", graph " graph[k])
      }
    }
  }
  print "rows " rows
  print "ways" used
  for (i = 0; ("left_out." i ".algorithm") in value; ++i) {
    name = value["left_out." i ".algorithm"]
    if (of_way[name]) continue  # of messages that are too large for it
    reason[name] = 1
    why = value["left_out." i ".why"]
    if (!(why in names)) whys[++why_count] = why
    names[why] = names[why] (names[why] == "" ? "" : ", ") name
  }
  for (i = 1; i <= why_count; ++i) print "left_out " names[whys[i]] ": " whys[i]
  for (i = 1; i <= known_count; ++i) {
    if (!of_way[known_way[i]] && !reason[known_way[i]]) offence(known_way[i] " was neither measured nor left out")
  }
  if (!figures) exit 0
  size_count = split("8192 32768 65536", size, " ")
  for (j = 1; j <= dtype_count; ++j) {
    for (s = 1; s <= size_count; ++s) {
      best = ""
      for (i = 1; i <= known_count; ++i) {
        kind = known_way[i] SUBSEP dtype[j] SUBSEP "true"
        if (!((kind, size[s]) in time)) continue
        print "figure " known_way[i] "_" dtype[j] "_" size[s] "_bytes_p50_us " time[kind, size[s]]
        if (best == "" || time[kind, size[s]] + 0 < time[best, dtype[j], "true", size[s]] + 0) best = known_way[i]
      }
      if (best != "" && j == 1) print "fastest " size[s] " " best " " time[best, dtype[j], "true", size[s]]
    }
    for (i = 1; i <= known_count; ++i) {
      kind = known_way[i] SUBSEP dtype[j] SUBSEP "true"
      if ((kind, 16777216) in busbw) {
        print "figure " known_way[i] "_" dtype[j] "_16777216_bytes_busbw_gb_per_s " busbw[kind, 16777216]
      }
    }
  }
}
