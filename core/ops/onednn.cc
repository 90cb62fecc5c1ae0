#include "core/ops/onednn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/ops/library_versions.h"

namespace sidestep {

LibraryVersion onednn_version() {
  const dnnl_version_t* loaded = dnnl_version();
  return {"oneDNN",
          fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH),
          fmt::format("{}.{}.{}", loaded->major, loaded->minor, loaded->patch)};
}

namespace ops {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

/// Descriptors of one convolution: images dense, weights as the library likes.
struct Descriptors {
  memory::desc x, weight, bias, y;
  memory::dims strides, padding;
};

memory::desc describe(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}

Descriptors describe(const ConvShape& s) {
  return {describe({s.n, s.c, s.h, s.w}, Tag::nhwc),
          describe({s.k, s.c, s.r, s.s}, Tag::any),
          describe({s.k}, Tag::x),
          describe({s.n, s.k, s.oh, s.ow}, Tag::nhwc),
          {s.stride, s.stride},
          {s.pad, s.pad}};
}

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;
constexpr auto kTraining = dnnl::prop_kind::forward_training;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// oneDNN 3 folded operation descriptors into primitive descriptors.
#if DNNL_VERSION_MAJOR >= 3
Forward::primitive_desc forward_desc(const dnnl::engine& engine, const Descriptors& d, bool bias) {
  if (!bias)
    return {engine, kTraining, kDirect, d.x, d.weight, d.y, d.strides, d.padding, d.padding};
  return {engine, kTraining, kDirect, d.x, d.weight, d.bias, d.y, d.strides, d.padding, d.padding};
}

BackwardData::primitive_desc backward_data_desc(const dnnl::engine& engine, const Descriptors& d) {
  return {engine,    kDirect,   d.x,
          d.weight,  d.y,       d.strides,
          d.padding, d.padding, forward_desc(engine, d, false)};
}

BackwardWeights::primitive_desc backward_weights_desc(const dnnl::engine& engine,
                                                      const Descriptors& d) {
  return {engine,    kDirect,   d.x,
          d.weight,  d.y,       d.strides,
          d.padding, d.padding, forward_desc(engine, d, false)};
}
#else
Forward::primitive_desc forward_desc(const dnnl::engine& engine, const Descriptors& d, bool bias) {
  if (!bias) {
    return {{kTraining, kDirect, d.x, d.weight, d.y, d.strides, d.padding, d.padding}, engine};
  }
  return {{kTraining, kDirect, d.x, d.weight, d.bias, d.y, d.strides, d.padding, d.padding},
          engine};
}

BackwardData::primitive_desc backward_data_desc(const dnnl::engine& engine, const Descriptors& d) {
  return {{kDirect, d.x, d.weight, d.y, d.strides, d.padding, d.padding},
          engine,
          forward_desc(engine, d, false)};
}

BackwardWeights::primitive_desc backward_weights_desc(const dnnl::engine& engine,
                                                      const Descriptors& d) {
  return {{kDirect, d.x, d.weight, d.y, d.strides, d.padding, d.padding},
          engine,
          forward_desc(engine, d, false)};
}
#endif

}  // namespace

/// Memory objects are made once; each run only changes their pointers.
struct OnednnConv::Impl {
  explicit Impl(const ConvShape& shape)
      : descriptors(describe(shape)),
        user_weight(describe({shape.k, shape.c, shape.r, shape.s}, Tag::oihw), engine, nullptr) {}

  void set_weight(int argument, const memory::desc& desc) {
    weight = memory(desc, engine);
    add(argument, weight);
  }
  void add(int argument, const memory::desc& desc) { add(argument, memory(desc, engine, nullptr)); }
  void add(int argument, const memory& object) {
    objects.push_back(object);
    arguments.push_back({argument, object.get()});
  }
  void point(int argument, const float* data) {
    const auto at = std::ranges::find(arguments, argument, &dnnl_exec_arg_t::arg);
    objects[static_cast<std::size_t>(at - arguments.begin())].set_data_handle(
        const_cast<float*>(data));
  }
  // The C++ form of execute() makes a list of the arguments each time; this allocates nothing.
  void execute(const dnnl::primitive& what, std::span<const dnnl_exec_arg_t> with) {
    dnnl::error::wrap_c_api(dnnl_primitive_execute(what.get(), stream.get(),
                                                   static_cast<int>(with.size()), with.data()),
                            "could not execute a primitive");
  }
  void execute() { execute(primitive, arguments); }
  void move_weight(const memory& from, const memory& to) {
    execute(reorder, std::array<dnnl_exec_arg_t, 2>{
                         {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}});
  }
  void weights_in(const float* data) {
    user_weight.set_data_handle(const_cast<float*>(data));
    move_weight(user_weight, weight);
  }

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Descriptors descriptors;
  memory user_weight;
  memory weight;
  dnnl::reorder reorder;
  dnnl::primitive primitive;
  std::vector<memory> objects;
  std::vector<dnnl_exec_arg_t> arguments;  ///< of the primitive: handles of `objects`
};

OnednnConv::OnednnConv(ConvPass pass, const ConvShape& shape, bool bias) try
    : impl_(std::make_unique<Impl>(shape)) {
  Impl& m = *impl_;
  const Descriptors& d = m.descriptors;
  if (pass == ConvPass::forward) {
    const auto desc = forward_desc(m.engine, d, bias);
    m.primitive = Forward(desc);
    m.set_weight(DNNL_ARG_WEIGHTS, desc.weights_desc());
    m.add(DNNL_ARG_SRC, d.x);
    m.add(DNNL_ARG_DST, d.y);
    if (bias) m.add(DNNL_ARG_BIAS, d.bias);
  } else if (pass == ConvPass::grad_x) {
    const auto desc = backward_data_desc(m.engine, d);
    m.primitive = BackwardData(desc);
    m.set_weight(DNNL_ARG_WEIGHTS, desc.weights_desc());
    m.add(DNNL_ARG_DIFF_DST, d.y);
    m.add(DNNL_ARG_DIFF_SRC, d.x);
  } else {
    const auto desc = backward_weights_desc(m.engine, d);
    m.primitive = BackwardWeights(desc);
    m.set_weight(DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc());
    m.add(DNNL_ARG_DIFF_DST, d.y);
    m.add(DNNL_ARG_SRC, d.x);
  }
  m.reorder = pass == ConvPass::grad_w ? dnnl::reorder(m.weight, m.user_weight)
                                       : dnnl::reorder(m.user_weight, m.weight);
} catch (const dnnl::error& error) {
  fail(Exit::device,
       fmt::format("[conv2d] expected a oneDNN convolution for x [{}, {}, {}, {}] and "
                   "weight [{}, {}, {}, {}], got: {}",
                   shape.n, shape.h, shape.w, shape.c, shape.k, shape.c, shape.r, shape.s,
                   error.what()));
}

OnednnConv::~OnednnConv() = default;

void OnednnConv::forward(const float* x, const float* weight, const float* bias, float* y) {
  Impl& m = *impl_;
  m.weights_in(weight);
  m.point(DNNL_ARG_SRC, x);
  m.point(DNNL_ARG_DST, y);
  if (bias != nullptr) m.point(DNNL_ARG_BIAS, bias);
  m.execute();
  m.stream.wait();
}

void OnednnConv::grad_x(const float* dy, const float* weight, float* dx) {
  Impl& m = *impl_;
  m.weights_in(weight);
  m.point(DNNL_ARG_DIFF_DST, dy);
  m.point(DNNL_ARG_DIFF_SRC, dx);
  m.execute();
  m.stream.wait();
}

void OnednnConv::grad_w(const float* dy, const float* x, float* dweight) {
  Impl& m = *impl_;
  m.point(DNNL_ARG_DIFF_DST, dy);
  m.point(DNNL_ARG_SRC, x);
  m.execute();
  m.user_weight.set_data_handle(dweight);
  m.move_weight(m.weight, m.user_weight);
  m.stream.wait();
}

}  // namespace ops
}  // namespace sidestep
