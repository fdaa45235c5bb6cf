# Compares two documents of `shardscope generate --top-logits`, as json_lines.awk gives them: what is tested, then the reference.
#
#   awk -v epsilon=E -v steps=S -f compare_logits.awk TESTED REFERENCE
#
# Logits of tokens that both list must agree within epsilon x sums x the largest logit, where sums is how often an error of
# epsilon may add up: S == "worst": in every term of every layer's longest sum (fp32, where that is still small); S == "likely":
# four roundings a layer that are independent, and twice that. A token that only one lists must be no larger than the other's
# smallest. Where the tokens part, their logits must be that near, too; the comparison of this request ends there.
# Prints "N logits, largest difference D of T allowed", or the first offence with status 1.
function number(text) { return text ~ /^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$/ }
function offence(text) {
  print text
  failed = 1
  exit 1
}
FNR == 1 { ++file }
file == 1 { tested[$1] = $2 }
file == 2 { reference[$1] = $2 }

# read_step(PLACE, FROM, LOGITS): one step's list into LOGITS[id]; `smallest` of it. 0: there is none.
function read_step(place, from, logits,  k, logit) {
  split("", logits)
  for (k = 0; (place "." k ".0") in from; ++k) {
    logit = from[place "." k ".1"]
    if (!number(logit)) offence(place ": a logit is " logit)
    logits[from[place "." k ".0"]] = logit + 0
    if (k == 0 || logit + 0 < smallest) smallest = logit + 0
  }
  return k
}
function check(difference, what) {
  if (difference < 0) difference = -difference
  if (!(difference <= tolerance)) offence(what ": the difference is " difference ", and " tolerance " is allowed")
  if (difference > worst) worst = difference
  ++compared
}
END {
  if (failed) exit 1
  layers = reference["model.layers"]
  longest = reference["model.ffn"] > reference["model.hidden"] ? reference["model.ffn"] : reference["model.hidden"]
  if (!(layers > 0 && longest > 0)) offence("the reference names no model")
  for (path in reference) {
    if (path !~ /^requests\.[0-9]+\.top_logits\.[0-9]+\.[0-9]+\.1$/) continue
    size = reference[path] < 0 ? -reference[path] : reference[path] + 0
    if (size > largest) largest = size
  }
  tolerance = epsilon * largest * (steps == "worst" ? longest * layers : 2 * sqrt(4 * layers))
  for (r = 0; ("requests." r ".output_token_ids.0") in reference; ++r) {
    for (step = 0; ; ++step) {
      output = "requests." r ".output_token_ids." step
      place = "requests." r ".top_logits." step
      if ((output in tested) != (output in reference)) offence("request " r ": other numbers of tokens")
      if (!(output in reference)) break
      if (!read_step(place, tested, ours)) offence(place ": not in the tested document")
      ours_smallest = smallest
      if (!read_step(place, reference, theirs)) offence(place ": not in the reference")
      theirs_smallest = smallest
      for (id in theirs) {
        if (id in ours) check(ours[id] - theirs[id], "request " r ", step " step ", token " id)
        else if (!(theirs[id] - ours_smallest <= tolerance)) offence("request " r ", step " step ": token " id " is not listed")
      }
      for (id in ours) {
        if (!(id in theirs) && !(ours[id] - theirs_smallest <= tolerance)) {
          offence("request " r ", step " step ": token " id " is listed")
        }
      }
      if (tested[output] == reference[output]) continue
      if (!((tested[output] in theirs) && (reference[output] in theirs))) offence("request " r ", step " step ": another token")
      check(theirs[tested[output]] - theirs[reference[output]], "request " r ", step " step ", another token")
      break
    }
  }
  if (failed) exit 1
  if (compared == 0) offence("nothing to compare")
  printf "%d logits, largest difference %.3g of %.3g allowed\n", compared, worst, tolerance
}
