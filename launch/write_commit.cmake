# At each build: writes FILE, a header with the commit of the sources in SOURCE, "-dirty" behind it where they differ
# from it; empty where they are no repository (a tarball) or there is no GIT. An unchanged file keeps its time, so that
# nothing is built again.
#   cmake -D GIT=… -D SOURCE=… -D FILE=… -P write_commit.cmake
cmake_minimum_required(VERSION 3.25)
set(commit "")
if(GIT AND EXISTS ${SOURCE}/.git)
  # Tags are left out (they say less than the commit does), and nobody else's git command is locked out.
  execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#pragma once\n\ninline constexpr const char* kCommit = \"@commit@\";\n" @ONLY)
