# KVT_CUDA: the compiler of src/backend/cuda, tests/cuda and bench/cuda, and what they are compiled with. Included before any
# target is made; without KVT_CUDA nothing here is needed.
option(KVT_CUDA "Build the backend cuda (needs nvcc 13)" OFF)
if(NOT KVT_CUDA)
  return()
endif()

# Machine code for Hopper alone, and with what only sm_90a has: -gencode=arch=compute_90a,code=sm_90a. The shorthand
# -arch=sm_90a would compile for plain sm_90 too.
set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "Architectures of the device code")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3" CACHE STRING "Optimisation of CUDA sources")
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(KVT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT KVT_NVCC)
    message(FATAL_ERROR "KVT_CUDA is on, and nvcc was not found: put it on the PATH, or name it by CUDACXX or -DCMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_COMPILER ${KVT_NVCC})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old, 13 is needed")
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

# The runtime for targets that a C compiler links. Its symbols stay inside: another one may be in the process.
find_library(KVT_CUDART cudart_static HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} NO_CACHE REQUIRED)
add_library(kvt_cudart INTERFACE)
target_link_libraries(kvt_cudart INTERFACE ${KVT_CUDART} dl rt)
target_link_options(kvt_cudart INTERFACE LINKER:--exclude-libs,libcudart_static.a)

# As for C (cmake/warnings.cmake), a*b+c is two roundings unless the code says fma: bytes depend on it. Attention is judged
# by its error, and may be contracted.
set(KVT_CUDA_FLAGS -fmad=false)
set(KVT_CUDA_FLAGS_attend -fmad=true)

# Adds the device's sources of a folder to a target, if there are any.
function(kvt_cuda_sources target folder)
  file(GLOB src CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/*.cuh ${folder}/*.c ${folder}/*.h)
  foreach(file ${src})
    get_filename_component(name ${file} NAME)
    if(name MATCHES "^(test_|bench_)?attend.*\\.cu$")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${KVT_CUDA_FLAGS_attend}")
    elseif(name MATCHES "\\.cu$")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${KVT_CUDA_FLAGS}")
    endif()
  endforeach()
  target_sources(${target} PRIVATE ${src})
endfunction()
