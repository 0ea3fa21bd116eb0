# The same processor family without its newer instructions (Debian: qemu-user): what is compiled for the baseline must run.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64 -cpu Nehalem)
