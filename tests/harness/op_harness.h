// Checks one op against a plain float64 reference: types, values, gradients (its own grad function
// against central differences of the reference), guard bytes, untouched inputs, and a repeat run
// that must be identical bit for bit.
#pragma once

#include <cstdint>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace sidestep::testing {

/// A tensor whose elements, of whatever type, are held as float64.
struct Tensor64 {
  TensorType type;
  std::vector<double> values;
  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
};

/// Computes all outputs of an op, types included.
using Reference = std::vector<Tensor64> (*)(const Attrs& attrs, std::span<const Tensor64> in);

struct OpInput {
  enum class Fill {
    normal,  ///< standard normal
    coarse,  ///< normal, rounded to halves: exact zeros and ties
    labels,  ///< whole numbers in [0, below)
  };
  TensorType type;
  Fill fill = Fill::normal;
  std::int64_t below = 0;
};

/// Shorthands for tables.
OpInput normal(Shape shape);
OpInput coarse(Shape shape);
OpInput labels(std::int64_t n, std::int64_t below);

struct OpCase {
  std::string name;
  const OpDef* op;
  std::vector<OpInput> in;
  Attrs attrs;
  Reference reference;
  bool has_cuda = true;  ///< false: prepare must refuse a CUDA device
};

/// What test lists show of a case.
inline void PrintTo(const OpCase& test, std::ostream* out) { *out << test.name; }

struct OpReport {
  std::vector<std::string> problems;  ///< "[case] kind: ..."; empty if all is right
  std::int64_t comparisons = 0;       ///< numbers compared; none at all is a problem
  std::set<std::string> ops_run;      ///< the op and those its gradient is made of
};

OpReport check_op(const OpCase& test, Device device);

}  // namespace sidestep::testing
