# The one list of compiler flags that every target of the project gets. What nvcc takes is said for it; the rest is for C.
add_library(kvt_flags INTERFACE)
target_compile_features(kvt_flags INTERFACE c_std_17)
target_compile_definitions(kvt_flags INTERFACE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
# -ffp-contract=off: a*b+c is two roundings unless the code says fma(); the numeric contracts depend on it.
set(kvt_c_flags -ffp-contract=off -fno-math-errno -fvisibility=hidden
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wconversion -Wno-sign-conversion)
# The C headers that .cu files include leave fields out of initializers, and give a function the name of its struct.
set(kvt_cuda_flags -Xcompiler=-ffp-contract=off,-fvisibility=hidden,-fno-exceptions,-Wall,-Wextra,-Wshadow=local,-Wno-missing-field-initializers)
if(KVT_WERROR)
  list(APPEND kvt_c_flags -Werror)
  list(APPEND kvt_cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
endif()
target_compile_options(kvt_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:${kvt_c_flags}>" "$<$<COMPILE_LANGUAGE:CUDA>:${kvt_cuda_flags}>")
if(KVT_ASSERTS)
  target_compile_definitions(kvt_flags INTERFACE KVT_ASSERTS)
endif()
if(KVT_SANITIZE)
  target_compile_options(kvt_flags INTERFACE -fsanitize=${KVT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(kvt_flags INTERFACE -fsanitize=${KVT_SANITIZE})
endif()

# Every program calls this.
function(kvt_finish_program target)
  target_link_libraries(${target} PRIVATE kvt_flags)
  if(KVT_SANITIZE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/sanitize.c)
  endif()
endfunction()
