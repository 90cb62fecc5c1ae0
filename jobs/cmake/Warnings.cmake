# Interface target with what every target of ours compiles with.
add_library(sidestep_flags INTERFACE)
target_include_directories(sidestep_flags INTERFACE ${CMAKE_SOURCE_DIR})
set(cxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    # g++ 12 reports accesses that cannot happen once std::vector code is inlined
    -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
target_compile_options(sidestep_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>")
if(SIDESTEP_WERROR)
  target_compile_options(sidestep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# AVX2 and FMA are what the program is built for on x86-64; SIDESTEP_ARCH=native or x86-64 changes it.
set(SIDESTEP_ARCH "x86-64-v3" CACHE STRING "-march of host code")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(sidestep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${SIDESTEP_ARCH}>)
endif()
# No fused operations that differ between optimisation levels: results must repeat bit for bit.
target_compile_options(sidestep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(SIDESTEP_SANITIZE STREQUAL "address")
  target_compile_options(sidestep_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer -g1)
  target_link_options(sidestep_flags INTERFACE -fsanitize=address,undefined)
elseif(SIDESTEP_SANITIZE STREQUAL "thread")
  target_compile_options(sidestep_flags INTERFACE -fsanitize=thread -g1)
  target_link_options(sidestep_flags INTERFACE -fsanitize=thread)
endif()
