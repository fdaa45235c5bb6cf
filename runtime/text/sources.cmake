# NFC needs Unicode's tables: Debian libutf8proc-dev.
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
target_link_libraries(shardscope_runtime PRIVATE PkgConfig::UTF8PROC)

list(APPEND runtime_sources
     text/added.cpp
     text/byte_map.cpp
     text/merge.cpp
     text/nfc.cpp
     text/splitter.cpp
     text/stream.cpp
     text/tokenizer.cpp
     text/tokenizer_json.cpp
     text/utf8.cpp)
