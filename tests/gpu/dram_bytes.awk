# Sums up dram__bytes_read.sum over the kernels of `ncu --csv --print-units base`; prints bytes, and how many kernels.
# Status 1 if there is no such line, or one without a number of bytes.
BEGIN { name = unit = amount = 0 }
/^"/ {
  line = $0
  sub(/^"/, "", line)
  sub(/"\r?$/, "", line)
  fields = split(line, field, /","/)
  if (!name) {
    for (i = 1; i <= fields; ++i) {
      if (field[i] == "Metric Name") name = i
      if (field[i] == "Metric Unit") unit = i
      if (field[i] == "Metric Value") amount = i
    }
    next
  }
  if (field[name] != "dram__bytes_read.sum") next
  gsub(/,/, "", field[amount])
  if (field[unit] != "byte" || field[amount] !~ /^[0-9]+(\.[0-9]+)?$/) {
    failed = 1
    exit 1
  }
  bytes += field[amount]
  ++kernels
}
END {
  if (failed || kernels == 0) exit 1
  printf "%.0f %d\n", bytes, kernels
}
