list(APPEND runtime_sources
  report/advice.cpp
  report/bench_table.cpp
  report/comm_json.cpp
  report/comm_table.cpp
  report/comparable.cpp
  report/csv.cpp
  report/document.cpp
  report/environment_json.cpp
  report/json_field.cpp
  report/names.cpp
  report/point_json.cpp
  report/point_reading.cpp
  report/report_file.cpp
  report/scale_table.cpp
  report/table.cpp
  report/table_text.cpp)
