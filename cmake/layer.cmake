# A layer is its folder's sources: a new file needs no edit here. This is also the one place where an instruction-set level
# becomes compiler flags: a file named *_LEVEL.c is compiled for that level, every other file for the baseline.
set(KVT_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(KVT_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vnni ${KVT_FLAGS_avx2})
set(KVT_FLAGS_neon)
set(KVT_FLAGS_ref)
# Under sanitizers these files would compile for minutes. The three checks left out are of pointers that AddressSanitizer looks
# at when they are used, by calls, which are compiled sooner than checks in line; and a fuzzer has nothing to find in the branches
# of kernels, whose reads depend on no byte of a tile.
if(KVT_SANITIZE MATCHES "undefined")
  set(kvt_kernel_checks -fno-sanitize=null,pointer-overflow,object-size -gline-tables-only
    -mllvm -asan-instrumentation-with-call-threshold=0)
endif()
if(KVT_FUZZ)
  set(kvt_kernel_checks -fno-sanitize=all -O1)
endif()

function(kvt_layer target folder)
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  file(GLOB src CONFIGURE_DEPENDS ${dir}/*.c ${dir}/*.h)
  set(isa)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    file(GLOB isa CONFIGURE_DEPENDS ${dir}/x86/*.c)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    file(GLOB isa CONFIGURE_DEPENDS ${dir}/arm/*.c)
  endif()
  foreach(file ${isa})
    if(file MATCHES "_(ref|avx2|avx512|neon)\\.c$")
      set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${KVT_FLAGS_${CMAKE_MATCH_1}};${kvt_kernel_checks}")
    else()
      message(FATAL_ERROR "${file}: the name must end in _LEVEL.c")
    endif()
  endforeach()
  target_sources(${target} PRIVATE ${src} ${isa})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
endfunction()
