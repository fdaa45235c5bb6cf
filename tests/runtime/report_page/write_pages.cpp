// Writes the page of every made-up report, and the report beside it, for a browser: write_pages FOLDER.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "runtime/report/page/page.hpp"
#include "tests/runtime/report_page/made_up_reports.hpp"

int main(int argc, char** argv) {
  using namespace shardscope;
  if (argc != 2) {
    std::cerr << "write_pages FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  for (const auto& [name, report] : test::all_reports()) {
    std::ofstream(folder / (name + ".html"))
        << runtime::report_page(report, {.topology_svg = test::drawing_of(report)});
    std::ofstream(folder / (name + ".json")) << runtime::document_text(report);
  }
  return 0;
}
