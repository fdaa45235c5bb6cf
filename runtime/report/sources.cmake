list(APPEND runtime_sources
  report/document.cpp
  report/report_file.cpp
  report/table.cpp)
