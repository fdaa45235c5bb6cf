# The text of FILES as a C++ constant NAME (runtime/report/page/assets.hpp), written to OUT.
set(text "")
foreach(file ${FILES})
  file(READ ${file} one)
  string(APPEND text "${one}")
endforeach()
set(mark shardscope_asset)
string(FIND "${text}" ")${mark}\"" found)
if(NOT found EQUAL -1)
  message(FATAL_ERROR "${FILES}: the text holds the mark that ends it")
endif()
string(SHA256 sum "${text}")
file(WRITE ${OUT} "#include \"runtime/report/page/assets.hpp\"
#pragma GCC diagnostic ignored \"-Woverlength-strings\"
namespace shardscope::runtime {
const PageAsset ${NAME} = {R\"${mark}(${text})${mark}\", \"${sum}\"};
}
")
