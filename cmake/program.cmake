# Everything above the library: files and weights (no dependencies, so that cross builds can test them too), the engine, the
# program.
find_package(PkgConfig)
if(KVT_BLAS AND PkgConfig_FOUND AND NOT CMAKE_CROSSCOMPILING)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
endif()

add_library(kvt_weight STATIC)
foreach(folder gguf weight)
  kvt_layer(kvt_weight ${folder})
endforeach()
target_include_directories(kvt_weight PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kvt_weight PRIVATE kvt_flags PUBLIC kvtile_static)
if(KVT_BLAS AND TARGET PkgConfig::OPENBLAS)
  target_compile_definitions(kvt_weight PRIVATE KVT_HAVE_OPENBLAS)
  target_link_libraries(kvt_weight PUBLIC PkgConfig::OPENBLAS)
endif()

if(KVT_PROGRAM)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)

  add_library(kvt_engine STATIC)
  foreach(folder text json model fidelity bench)
    kvt_layer(kvt_engine ${folder})
  endforeach()
  target_link_libraries(kvt_engine PRIVATE kvt_flags PUBLIC kvt_weight PkgConfig::PCRE2 PkgConfig::JANSSON)

  add_executable(kvtile)
  kvt_layer(kvtile cli)
  target_link_libraries(kvtile PRIVATE kvt_engine)
  kvt_finish_program(kvtile)
  install(TARGETS kvtile RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
