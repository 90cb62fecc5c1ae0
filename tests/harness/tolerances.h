// All numerical tolerances of the op tests. Errors are compared with bound * max(1, largest
// expected magnitude of the tensor).
#pragma once

namespace sidestep::testing {

/// Outputs in float32 against a float64 reference: sums of some hundred products.
inline constexpr double kForwardTolerance = 1e-5;
/// Gradients in float32 against central differences of the float64 reference.
inline constexpr double kGradientTolerance = 3e-5;
/// Step of the central differences.
inline constexpr double kDifferenceStep = 1e-5;
/// One-sided slopes that differ by more than this lie on both sides of a kink; any slope between
/// them is right there.
inline constexpr double kKinkSlope = 1e-3;

/// Weights near one after some steps on N ranks against one rank: float32 sums in another order.
inline constexpr double kRanksTolerance = 2e-6;

}  // namespace sidestep::testing
