# Finds every library; a missing one is named with its apt, Spack and conda package.
function(sidestep_missing what apt spack conda)
  message(FATAL_ERROR "${what} was not found.\n"
    "  Debian: apt install ${apt}\n  Spack:  spack install ${spack}\n  conda:  conda install ${conda}\n"
    "Or name its folder: -DCMAKE_PREFIX_PATH=DIR (several with ';'), or load its environment module.")
endfunction()

find_package(Threads REQUIRED)

find_package(MPI COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  sidestep_missing("MPI (Open MPI 4.1 or newer)" "libopenmpi-dev openmpi-bin" "openmpi" "openmpi")
endif()

# Looked up directly: CMake's own module asks the h5cc wrapper, which names the folders HDF5 was
# built for and not those of a prefix it was unpacked into. Debian keeps each flavour in a folder.
set(hdf5_roots $ENV{HDF5_ROOT} $ENV{HDF5_DIR} $ENV{HDF5_HOME})
find_path(SIDESTEP_HDF5_INCLUDE_DIR hdf5.h HINTS ${hdf5_roots}
  PATH_SUFFIXES include hdf5/serial include/hdf5/serial hdf5/openmpi include/hdf5/openmpi)
find_library(SIDESTEP_HDF5_LIBRARY NAMES hdf5 hdf5_serial hdf5_openmpi NAMES_PER_DIR HINTS ${hdf5_roots}
  PATH_SUFFIXES lib lib64)
if(NOT SIDESTEP_HDF5_INCLUDE_DIR OR NOT SIDESTEP_HDF5_LIBRARY)
  sidestep_missing("HDF5 (1.10 or newer, C library)" libhdf5-dev hdf5 hdf5)
endif()
add_library(sidestep_hdf5 INTERFACE)
target_include_directories(sidestep_hdf5 SYSTEM INTERFACE ${SIDESTEP_HDF5_INCLUDE_DIR})
target_link_libraries(sidestep_hdf5 INTERFACE ${SIDESTEP_HDF5_LIBRARY})
file(GLOB hdf5_config ${SIDESTEP_HDF5_INCLUDE_DIR}/H5pubconf*.h)
foreach(header ${hdf5_config})
  file(STRINGS ${header} hdf5_parallel REGEX "define H5_HAVE_PARALLEL 1")
  if(hdf5_parallel)  # accepted: its headers need MPI's
    target_link_libraries(sidestep_hdf5 INTERFACE MPI::MPI_CXX)
    break()
  endif()
endforeach()

find_package(Boost 1.74 COMPONENTS program_options)
if(NOT Boost_PROGRAM_OPTIONS_FOUND)
  sidestep_missing("Boost.Program_options (1.74 or newer)" libboost-program-options-dev
    "boost+program_options" libboost-devel)
endif()

# Looked up directly: the package's own CMake file demands OpenCL headers that nothing here uses.
find_path(SIDESTEP_DNNL_INCLUDE_DIR dnnl.hpp HINTS $ENV{DNNLROOT} PATH_SUFFIXES include)
find_library(SIDESTEP_DNNL_LIBRARY NAMES dnnl HINTS $ENV{DNNLROOT} PATH_SUFFIXES lib lib64)
if(NOT SIDESTEP_DNNL_INCLUDE_DIR OR NOT SIDESTEP_DNNL_LIBRARY)
  sidestep_missing("oneDNN (2.6 or newer)" libdnnl-dev onednn onednn)
endif()
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${SIDESTEP_DNNL_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${SIDESTEP_DNNL_INCLUDE_DIR})

find_package(OpenMP COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  sidestep_missing("OpenMP for C++ (thread counts of oneDNN and BLAS)" g++ gcc gxx)
endif()

# OpenBLAS by default; -DSIDESTEP_BLAS_LIBRARY=... names another CBLAS (MKL, BLIS).
find_library(SIDESTEP_BLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-openmp)
find_path(SIDESTEP_BLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-openmp
  "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp" "${CMAKE_LIBRARY_ARCHITECTURE}/openblas")
if(NOT SIDESTEP_BLAS_LIBRARY OR NOT SIDESTEP_BLAS_INCLUDE_DIR)
  sidestep_missing("A CBLAS (OpenBLAS, OpenMP flavour)" libopenblas-openmp-dev
    "openblas threads=openmp" "openblas=*=*openmp*")
endif()
add_library(sidestep_blas INTERFACE)
target_include_directories(sidestep_blas SYSTEM INTERFACE ${SIDESTEP_BLAS_INCLUDE_DIR})
target_link_libraries(sidestep_blas INTERFACE ${SIDESTEP_BLAS_LIBRARY})

find_package(fmt CONFIG)
if(NOT fmt_FOUND)
  sidestep_missing("fmt" libfmt-dev fmt fmt)
endif()
find_package(spdlog CONFIG)
if(NOT spdlog_FOUND)
  sidestep_missing("spdlog" libspdlog-dev spdlog spdlog)
endif()
find_package(nlohmann_json CONFIG)
if(NOT nlohmann_json_FOUND)
  sidestep_missing("nlohmann-json" nlohmann-json3-dev nlohmann-json nlohmann_json)
endif()
find_package(ZLIB)
if(NOT ZLIB_FOUND)
  sidestep_missing("zlib" zlib1g-dev zlib-ng zlib)
endif()
if(SIDESTEP_TESTS)
  find_package(GTest)
  if(NOT GTest_FOUND)
    sidestep_missing("GoogleTest (or build with -DSIDESTEP_TESTS=OFF)" "libgtest-dev libgmock-dev"
      googletest gtest)
  endif()
endif()
