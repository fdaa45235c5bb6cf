# A JSON document as lines "path value", for machines without Python: results.0.mbu.mean 0.87. Strings stand without their
# quotes, escapes as they are. Reads documents whose strings hold no line breaks, as all of ours.
function path(  i, text) {
  for (i = 1; i <= depth; ++i) text = text (i > 1 ? "." : "") (kind[i] == "[" ? count[i] : key[i])
  return text
}
function value(text) { print path() " " text }
{
  line = $0
  while (line != "") {
    if (match(line, /^[ \t\r]+/)) {
      line = substr(line, RLENGTH + 1)
      continue
    }
    first = substr(line, 1, 1)
    if (match(line, /^"([^"\\]|\\.)*"/)) {
      text = substr(line, 2, RLENGTH - 2)
      if (is_key) key[depth] = text
      else value(text)
    } else if (match(line, /^[-+.0-9a-zA-Z]+/)) {
      value(substr(line, 1, RLENGTH))
    } else {
      RLENGTH = 1
      if (first == "{" || first == "[") {
        kind[++depth] = first
        count[depth] = 0
        is_key = first == "{"
      } else if (first == "}" || first == "]") {
        --depth
        is_key = 0
      } else if (first == ",") {
        ++count[depth]
        is_key = kind[depth] == "{"
      } else if (first == ":") {
        is_key = 0
      }
    }
    line = substr(line, RLENGTH + 1)
  }
}
