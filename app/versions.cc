#include "app/versions.h"

#include <fmt/format.h>
#include <spdlog/version.h>
#include <zlib.h>

#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "comm/cuda_versions.h"
#include "comm/mpi_job.h"
#include "io/checkpoint_file.h"

namespace sidestep {

std::string program_version() { return SIDESTEP_VERSION; }

std::vector<LibraryVersion> library_versions() {
  const auto dotted = [](int a, int b, int c) { return fmt::format("{}.{}.{}", a, b, c); };
  const std::string boost =
      dotted(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100);
  const std::string fmt_version =
      dotted(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
  const std::string spdlog = dotted(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH);
  const std::string json =
      dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
  std::vector<LibraryVersion> libraries{
      {"MPI", MpiJob::compiled_version(), MpiJob::loaded_version()},
      {"HDF5", hdf5_compiled_version(), hdf5_loaded_version()},
      onednn_version(),
      blas_version(),
      {"zlib", ZLIB_VERSION, zlibVersion()},
      // These say nothing of themselves at run time.
      {"Boost", boost, ""},
      {"fmt", fmt_version, ""},
      {"spdlog", spdlog, ""},
      {"nlohmann-json", json, ""},
  };
  for (const LibraryVersion& library : cuda_library_versions()) libraries.push_back(library);
  return libraries;
}

std::string version_text() {
  std::string text = fmt::format("sidestep {}\n{:<15}{:<28}{}\n", program_version(), "library",
                                 "compiled", "loaded");
  for (const LibraryVersion& library : library_versions()) {
    text += fmt::format("{:<15}{:<28}{}\n", library.name, library.compiled,
                        library.loaded.empty() ? "-" : library.loaded);
  }
  return text;
}

}  // namespace sidestep
