# The CUDA backend is optional. CMake 3.25 does not know C++20 for nvcc, so it is told here.
if(NOT SIDESTEP_CUDA)
  return()
endif()
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
enable_language(CUDA)
list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit)
find_library(SIDESTEP_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_library(SIDESTEP_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT CUDAToolkit_FOUND OR NOT SIDESTEP_CUDNN_LIBRARY OR NOT SIDESTEP_NCCL_LIBRARY)
  sidestep_missing("CUDA Toolkit with cuDNN 9 and NCCL 2 (or build with -DSIDESTEP_CUDA=OFF)"
    "nvidia-cuda-toolkit (non-free), cuDNN and NCCL from NVIDIA" "cuda cudnn nccl"
    "cuda-toolkit cudnn nccl")
endif()
set(cuda_warnings -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter -Wext-lambda-captures-this)
if(SIDESTEP_WERROR)
  list(APPEND cuda_warnings -Werror=all-warnings -Xcompiler=-Werror)
endif()
target_compile_options(sidestep_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings};--extended-lambda;--expt-relaxed-constexpr>")
# The host half of single-source files is compiled as the other host code is.
target_compile_options(sidestep_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(sidestep_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-march=${SIDESTEP_ARCH}>")
endif()
