// Matrix products of the CPU: the one place that calls the CBLAS. Call from the compute stream.
#pragma once

#include <cstdint>

namespace sidestep::blas {

enum class Form { plain, transposed };

/// c [m, n] = form(a) [m, k] * form(b) [k, n] + beta * c. All dense and row-major; a transposed
/// operand is stored as [k, m] or [n, k].
void sgemm(Form form_a, Form form_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
           const float* b, float beta, float* c);

/// Makes the CBLAS take its working memory now; Exit::device if there is none. In the first product
/// OpenBLAS 0.3 would ask for it again and again, for ever. Any thread, before the first step.
void take_working_memory();

}  // namespace sidestep::blas
