#include "core/ops/blas.h"

#include <cblas.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ops/library_versions.h"
#include "core/ops/threads.h"

namespace sidestep {
namespace {

// What the two kinds of CBLAS header offer about versions.
#if defined(OPENBLAS_VERSION)
std::string compiled_blas() { return OPENBLAS_VERSION; }
std::string loaded_blas() { return openblas_get_config(); }
#else
std::string compiled_blas() { return "CBLAS"; }
std::string loaded_blas() { return "CBLAS"; }
#endif

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

LibraryVersion blas_version() { return {"BLAS", trimmed(compiled_blas()), trimmed(loaded_blas())}; }

namespace blas {
namespace {

/// Address space that OpenBLAS takes for each thread (its BUFFER_SIZE); it touches little of it.
constexpr std::size_t kWorkingMemory = std::size_t{128} << 20;

bool try_working_memory() {
  const std::size_t bytes = kWorkingMemory * static_cast<std::size_t>(compute_threads());
  void* probe = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED)
    fail(Exit::device,
         "host memory: expected " + std::to_string(bytes) +
             " bytes of address space for matrix products, found less; use fewer "
             "--threads, more hosts or fewer ranks a host, or raise the limit (ulimit -v)");
  munmap(probe, bytes);
  constexpr std::int64_t kSide = 64;  // not so small that it needs no working memory
  std::vector<float> a(kSide * kSide), c(kSide * kSide);
  sgemm(Form::plain, Form::plain, kSide, kSide, kSide, a.data(), a.data(), 0.0f, c.data());
  return true;
}

CBLAS_TRANSPOSE transpose(Form form) { return form == Form::plain ? CblasNoTrans : CblasTrans; }

}  // namespace

void take_working_memory() {
  [[maybe_unused]] static const bool taken = try_working_memory();  // again if it failed
}

void sgemm(Form form_a, Form form_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
           const float* b, float beta, float* c) {
  constexpr std::int64_t kLimit = 0x7fffffff;
  check(m <= kLimit && n <= kLimit && k <= kLimit, "matrix sizes fit a CBLAS int");
  const auto lda = static_cast<int>(form_a == Form::plain ? k : m);
  const auto ldb = static_cast<int>(form_b == Form::plain ? n : k);
  cblas_sgemm(CblasRowMajor, transpose(form_a), transpose(form_b), static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1.0f, a, lda, b, ldb, beta, c,
              static_cast<int>(n));
}

}  // namespace blas
}  // namespace sidestep
