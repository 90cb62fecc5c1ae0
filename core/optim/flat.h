// Elementwise passes over flat buffers beside the optimizers': sums of micro-batches, and what an
// exchange of models contributes and makes of the result. Every function only enqueues and
// allocates nothing; all views are float32 of one length on the stream's device.
#pragma once

#include "core/device/buffer.h"
#include "core/device/stream.h"

namespace sidestep {

/// y += x
void add_into(Stream& stream, const View& y, const View& x);
/// x *= factor
void scale(Stream& stream, const View& x, float factor);
/// Exchanges the contents of two buffers.
void swap_contents(Stream& stream, const View& a, const View& b);

/// Scalars of one exchange of models, read when the work runs, since some of them come with the
/// exchange. Must lie in host (pinned) memory that outlives the work.
struct MeanScalars {
  float own = 0;       ///< this rank's weight in the mean, not normalised
  float inverse = 0;   ///< 1 / (sum of all weights); 0: nobody takes part, nothing changes
  float lr = 1;        ///< outer rate zeta
  float momentum = 0;  ///< outer momentum mu
  float into = 1;      ///< scales what enters the momentum buffer
  float out_of = 1;    ///< scales what is taken from it
};

/// out = own * (before - now)
void weighted_change(Stream& stream, const View& out, const View& before, const View& now,
                     const MeanScalars* scalars);
/// out = own * x
void weighted_copy(Stream& stream, const View& out, const View& x, const MeanScalars* scalars);
/// x = inverse * sum; x stays where nobody takes part.
void take_mean(Stream& stream, const View& x, const View& sum, const MeanScalars* scalars);

/// The outer optimizer's step over G = inverse * sum, where sum adds up the weighted changes:
/// w = before = before - lr G.
void outer_step(Stream& stream, const View& w, const View& before, const View& sum,
                const MeanScalars* scalars);
/// The same with a buffer m:  m = momentum m + into G;  heavy ball: w = before = before - lr out_of
/// m; Nesterov: w = before = before - lr (G + momentum out_of m).
void outer_momentum_step(Stream& stream, const View& w, const View& before, const View& m,
                         const View& sum, bool nesterov, const MeanScalars* scalars);

/// Elastic averaging: out = alpha (x - centre); x -= out.
void elastic_pull(Stream& stream, const View& out, const View& x, const View& centre, float alpha);

}  // namespace sidestep
