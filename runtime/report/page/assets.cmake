# page_asset(NAME FILE…): the files, one after another, as `const PageAsset NAME` (assets.hpp) of the runtime's library.
# Other folders of runtime/report may call it, too; they declare what they add.
find_file(SHARDSCOPE_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
          DOC "Chart.js 3, minified, as a script that needs no module loader")
if(NOT SHARDSCOPE_CHART_JS)
  message(FATAL_ERROR "Chart.js (chart.min.js) not found, what to do: apt-get install libjs-chart.js")
endif()
file(READ ${SHARDSCOPE_CHART_JS} chart_head LIMIT 200)
if(NOT chart_head MATCHES "Chart\\.js v3\\.")
  message(FATAL_ERROR "${SHARDSCOPE_CHART_JS} is not Chart.js 3, what to do: apt-get install libjs-chart.js")
endif()

function(page_asset name)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/page_assets/${name}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/runtime/report/page/write_asset.cmake)
  add_custom_command(OUTPUT ${generated}
                     COMMAND ${CMAKE_COMMAND} -D NAME=${name} -D "FILES=${ARGN}" -D OUT=${generated} -P ${script}
                     DEPENDS ${ARGN} ${script} VERBATIM COMMENT "")
  target_sources(shardscope_runtime PRIVATE ${generated})
endfunction()

set(page ${CMAKE_CURRENT_SOURCE_DIR}/report/page)
page_asset(kChartScript ${SHARDSCOPE_CHART_JS})
page_asset(kChartLicence ${page}/chart_licence.txt)
page_asset(kPageStyle ${page}/page.css)
page_asset(kPageScript ${page}/page.js ${page}/marks.js ${page}/plots.js)
page_asset(kReportScript ${page}/report.js ${page}/report_head.js ${page}/report_scaling.js ${page}/report_parts.js
           ${page}/report_memory.js ${page}/report_throughput.js ${page}/report_spread.js ${page}/report_allreduce.js
           ${page}/report_rows.js ${page}/report_facts.js)
