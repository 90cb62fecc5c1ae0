# core: what a rank computes. One library a folder, in the order of the arrows.
add_library(sidestep_base STATIC
  core/base/error.cc
  core/base/log.cc
  core/base/rng.cc
  core/base/shape.cc
  core/base/trace.cc)
target_link_libraries(sidestep_base PUBLIC sidestep_flags Threads::Threads PRIVATE spdlog::spdlog)

set(device_files
  core/device/buffer.cc
  core/device/device.cc
  core/device/event.cc
  core/device/stream.cc
  core/device/stream_cpu.cc)
if(SIDESTEP_CUDA)
  list(APPEND device_files core/device/cuda_device.cu core/device/cuda_memory.cu core/device/cuda_stream.cu)
else()
  list(APPEND device_files core/device/no_cuda.cc)
endif()
add_library(sidestep_device STATIC ${device_files})
target_link_libraries(sidestep_device PUBLIC sidestep_base)
if(SIDESTEP_CUDA)
  target_link_libraries(sidestep_device PUBLIC CUDA::cudart)
endif()

add_library(sidestep_graph STATIC
  core/graph/autodiff.cc
  core/graph/executor.cc
  core/graph/graph.cc
  core/graph/memory_plan.cc
  core/graph/param_store.cc)

# Single-source files: g++ compiles them for the CPU, nvcc for both when CUDA is on.
set(single_source
  core/ops/add.cc
  core/ops/bias_grad.cc
  core/ops/constant.cc
  core/ops/flatten.cc
  core/ops/max_pool2d.cc
  core/ops/relu.cc
  core/ops/softmax_xent.cc)
set(optim_single_source
  core/optim/adamw.cc
  core/optim/flat.cc
  core/optim/norm.cc
  core/optim/sgd.cc)
if(SIDESTEP_CUDA)
  set_source_files_properties(${single_source} ${optim_single_source} PROPERTIES LANGUAGE CUDA)
else()
  # sqrtf that may set errno keeps the update from being vectorised
  set_source_files_properties(core/optim/adamw.cc PROPERTIES COMPILE_OPTIONS -fno-math-errno)
endif()
add_library(sidestep_ops STATIC ${single_source}
  core/ops/blas.cc
  core/ops/conv2d.cc
  core/ops/linear.cc
  core/ops/onednn.cc
  core/ops/op_check.cc
  core/ops/registry.cc
  core/ops/threads.cc)
# autodiff appends "add" and "constant", so graph and ops need each other's symbols.
target_link_libraries(sidestep_graph PUBLIC sidestep_device sidestep_ops)
target_link_libraries(sidestep_ops PUBLIC sidestep_device sidestep_graph PRIVATE sidestep_blas DNNL::dnnl fmt::fmt
  OpenMP::OpenMP_CXX)

add_library(sidestep_optim STATIC ${optim_single_source}
  core/optim/optimizer.cc
  core/optim/schedule.cc)
target_link_libraries(sidestep_optim PUBLIC sidestep_graph PRIVATE fmt::fmt)

add_library(sidestep_model STATIC
  core/model/layers.cc
  core/model/lenet.cc
  core/model/mlp.cc
  core/model/model.cc)
target_link_libraries(sidestep_model PUBLIC sidestep_graph PRIVATE fmt::fmt)
