# The web page's files as a C source, so that the program is all that there is to install.
file(GLOB kvt_page CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/serve/page/*)
set(kvt_page_source ${PROJECT_BINARY_DIR}/page_files.c)
add_custom_command(OUTPUT ${kvt_page_source}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${kvt_page}" -DOUT=${kvt_page_source} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${kvt_page} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake COMMENT "The web page as C" VERBATIM)
target_sources(kvt_engine PRIVATE ${kvt_page_source})
