# libkvtile, static and shared, and what cmake --install gives of it.
include(CMakePackageConfigHelpers)
foreach(kind static shared)
  string(TOUPPER ${kind} KIND)
  add_library(kvtile_${kind} ${KIND} $<TARGET_OBJECTS:kvt_core>)
  add_library(kvtile::${kind} ALIAS kvtile_${kind})
  set_target_properties(kvtile_${kind} PROPERTIES OUTPUT_NAME kvtile EXPORT_NAME ${kind} LINKER_LANGUAGE C)
  target_include_directories(kvtile_${kind} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
set_target_properties(kvtile_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_libraries(kvtile_shared PRIVATE kvt_flags m Threads::Threads)
if(NOT KVT_SANITIZE)
  target_link_options(kvtile_shared PRIVATE LINKER:--no-undefined)
endif()
target_link_libraries(kvtile_static INTERFACE m Threads::Threads)

set(kvt_private_libs "-lm -pthread")
if(KVT_CUDA)
  target_link_libraries(kvtile_shared PRIVATE kvt_cudart)
  target_link_libraries(kvtile_static INTERFACE ${KVT_CUDART} dl rt)
  string(APPEND kvt_private_libs " ${KVT_CUDART} -ldl -lrt")
endif()

install(TARGETS kvtile_static kvtile_shared EXPORT kvtile
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/kvtile DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(kvt_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvtile)
install(EXPORT kvtile NAMESPACE kvtile:: FILE kvtileTargets.cmake DESTINATION ${kvt_package_dir})
configure_package_config_file(cmake/kvtileConfig.cmake.in kvtileConfig.cmake INSTALL_DESTINATION ${kvt_package_dir})
write_basic_package_version_file(kvtileConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvtileConfig.cmake ${PROJECT_BINARY_DIR}/kvtileConfigVersion.cmake
  DESTINATION ${kvt_package_dir})

# The .pc file finds its tree from where it lies, so an installed tree can be moved.
file(RELATIVE_PATH kvt_pc_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" kvt_pc_prefix ${kvt_pc_prefix})
configure_file(cmake/kvtile.pc.in kvtile.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvtile.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
