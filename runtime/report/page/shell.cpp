// The frame of a page. Data stand in script elements that no browser runs; a content security policy names the hash of
// each script that may run, so that nothing else does, whatever a text of a report may hold.
#include <cstdint>

#include <fmt/format.h>

#include "runtime/report/page/page.hpp"
#include "topology/markup.hpp"

namespace shardscope::runtime {
namespace {

std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto value = [](char c) { return static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::string text;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : hex) {
    bits = (bits << 4) | value(c);
    for (held += 4; held >= 6; held -= 6) text += kDigits[(bits >> (held - 6)) & 63];
  }
  if (held > 0) text += kDigits[(bits << (6 - held)) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

std::string policy_of(const std::vector<PageAsset>& scripts) {
  std::string sources;
  for (const PageAsset& script : scripts) sources += fmt::format(" 'sha256-{}'", base64_of_hex(script.sha256));
  return fmt::format(
      "default-src 'none'; script-src{}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'",
      sources);
}

/// JSON in which no `<` can end the element that holds it, nor begin a comment; and no line separator of JavaScript.
std::string escaped_json(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::ignore);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i, 3);
    if (text[i] == '<') {
      out += "\\u003c";
    } else if (rest == "\u2028" || rest == "\u2029") {
      out += rest == "\u2028" ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Only what is UTF-8, as JSON keeps it.
std::string clean(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore)).get<std::string>();
}

}  // namespace

std::string page_shell(const PageShell& shell) {
  std::vector<PageAsset> scripts = {kChartScript, kPageScript};
  scripts.insert(scripts.end(), shell.scripts.begin(), shell.scripts.end());
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n"
      "<main id=\"page\"><noscript>This page draws its figures with its own scripts: allow them, or read the JSON "
      "report.</noscript></main>\n",
      policy_of(scripts), topology::escaped_markup(clean(shell.title)), kPageStyle.text);
  for (const auto& [id, svg] : shell.pictures) {
    html += fmt::format("<div id=\"picture-{}\" class=\"picture\" hidden>\n{}</div>\n", id, svg);
  }
  for (const auto& [id, document] : shell.data) {
    html += fmt::format("<script type=\"application/json\" id=\"data-{}\">{}</script>\n", id, escaped_json(document));
  }
  html += fmt::format("<!--\n{}-->\n", kChartLicence.text);
  for (const PageAsset& script : scripts) html += fmt::format("<script>{}</script>\n", script.text);
  return html + "</body>\n</html>\n";
}

}  // namespace shardscope::runtime
