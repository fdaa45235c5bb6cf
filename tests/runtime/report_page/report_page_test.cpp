// The page of a report as a document: what stands in it, and that no text of a report gets out of its place. What it
// looks like is page_browser_test.py's.
#include <algorithm>
#include <regex>

#include <catch2/catch.hpp>

#include "runtime/report/page/page.hpp"
#include "tests/runtime/report_page/made_up_reports.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Contains;
using Catch::StartsWith;

namespace {

size_t count_of(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

/// As a browser would find it: up to the first end tag.
std::string data_of(const std::string& html, const std::string& id) {
  const std::string begin = "<script type=\"application/json\" id=\"data-" + id + "\">";
  const size_t at = html.find(begin);
  REQUIRE(at != std::string::npos);
  const size_t from = at + begin.size();
  return html.substr(from, html.find("</script", from) - from);
}

/// The document without what its script elements and its title hold, as a browser sees their ends.
std::string without_scripts(std::string html) {
  for (size_t at = html.find("<script"); at != std::string::npos; at = html.find("<script", at + 8)) {
    const size_t from = html.find('>', at) + 1;
    html.erase(from, html.find("</script", from) - from);
  }
  const size_t title = html.find("<title>");
  return html.erase(title, html.find("</title>") - title);
}

}  // namespace

TEST_CASE("report_page: the report stands in it as it was given") {
  for (const auto& [name, report] : test::all_reports()) {
    CAPTURE(name);
    const std::string html = report_page(report, {.topology_svg = test::drawing_of(report)});
    const std::string data = data_of(html, "report");
    CHECK((Json::parse(data) == report));
    CHECK(data.find('<') == std::string::npos);
    CHECK(data.find("\u2028") == std::string::npos);
    CHECK(data.find("\u2029") == std::string::npos);
  }
}

TEST_CASE("report_page: one document that fetches nothing, and whose scripts are those of the build") {
  for (const auto& [name, report] : test::all_reports()) {
    CAPTURE(name);
    const std::string html = report_page(report, {.topology_svg = test::drawing_of(report)});
    CHECK_THAT(html, StartsWith("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"));
    const std::string frame = without_scripts(html);
    CHECK(count_of(frame, "<script") == 4);  // data, Chart.js, page.js, report.js
    CHECK(count_of(frame, "</script>") == 4);
    for (const char* fetching :
         {" src=", " href=", "<link", "@import", "url(", "<iframe", "<object", "<img", "onerror=\""}) {
      CAPTURE(fetching);
      CHECK(count_of(frame, fetching) == 0);
    }
    for (const PageAsset* script : {&kChartScript, &kPageScript, &kReportScript}) {
      CHECK(count_of(html, std::string("<script>") + std::string(script->text) + "</script>\n") == 1);
      CHECK(script->text.find("</script") == std::string_view::npos);
      CHECK(script->text.find("<!--") == std::string_view::npos);
      CHECK(script->sha256.size() == 64);
    }
    CHECK_THAT(html, Contains("Permission is hereby granted, free of charge"));
  }
}

TEST_CASE("report_page: the policy allows the scripts by their hashes and nothing else") {
  const std::string html = report_page(test::single_report(), {});
  const std::regex policy("<meta http-equiv=\"Content-Security-Policy\" content=\"([^\"]*)\">");
  std::smatch found;
  REQUIRE(std::regex_search(html, found, policy));
  const std::string content = found[1];
  CHECK_THAT(content, StartsWith("default-src 'none'; script-src 'sha256-"));
  CHECK_THAT(content, Contains("require-trusted-types-for 'script'"));
  const std::string scripts =
      content.substr(content.find("script-src"), content.find("; style-src") - content.find("script-src"));
  CHECK(scripts.find("unsafe") == std::string::npos);
  const std::regex hash("'sha256-[A-Za-z0-9+/]{43}='");
  CHECK(std::distance(std::sregex_iterator(scripts.begin(), scripts.end(), hash), {}) == 3);
  CHECK(html.find("Content-Security-Policy") < html.find("<style>"));
}

TEST_CASE("page_shell: a title is text, whatever is in it") {
  const std::string html = page_shell({.title = "</title><script>1</script>&amp;\xff\"'", .scripts = {}, .data = {}});
  CHECK_THAT(html, Contains("<title>&lt;/title&gt;&lt;script&gt;1&lt;/script&gt;&amp;amp;&quot;&#39;</title>"));
}

TEST_CASE("page_shell: bytes that are no UTF-8 are left out") {
  const Json document = {{"name", "a\xff\xc3"}, {"\xfe", 1}};
  const std::string html = page_shell({.title = "t", .scripts = {}, .data = {{"one", document}}});
  CHECK((Json::parse(data_of(html, "one")) == Json{{"name", "a"}, {"", 1}}));
}

TEST_CASE("report_page: the topology's drawing is there when there is one") {
  const Json report = test::big_report();
  const std::string svg = test::drawing_of(report);
  REQUIRE_THAT(svg, StartsWith("<svg"));
  const std::string with = report_page(report, {.topology_svg = svg});
  CHECK_THAT(with, Contains("<div id=\"picture-topology\" class=\"picture\" hidden>\n" + svg + "</div>"));
  CHECK(report_page(report, {}).find("picture-topology\" class") == std::string::npos);
}

TEST_CASE("report_page: a point in which everything is known") {
  const Json report = [] {
    Json made = test::single_report();
    made["results"] = Json::array({point_json(test::full_point(), true)});
    return made;
  }();
  CHECK((Json::parse(data_of(report_page(report, {}), "report")) == report));
}
