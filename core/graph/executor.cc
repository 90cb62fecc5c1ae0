#include "core/graph/executor.h"

#include <algorithm>

#include "core/base/error.h"

namespace sidestep {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::size_t bytes_of(const TensorType& type) {
  return static_cast<std::size_t>(type.shape.numel()) * size_of(type.dtype);
}

}  // namespace

/// A graph for one batch size, ready to run: every node's views and state.
struct Executor::Program {
  struct Step {
    const Node* node = nullptr;
    std::vector<View> in, out;
    std::unique_ptr<OpState> state;
    std::vector<ParamId> first_reads;  ///< forward: parameters no earlier node has read
    std::vector<ParamId> last_reads;   ///< parameters no later node reads
    std::vector<ParamId> final_grads;  ///< parameters whose gradient this node completes
  };
  Graph graph;
  ModelOutputs outputs;
  Backward backward;
  NodeId forward_end = 0;
  std::vector<ParamSpec> specs;
  MemoryPlan plan;
  std::vector<View> views;  ///< by ValueId
  std::vector<Step> steps;  ///< by NodeId
  std::vector<ParamId> without_grad;

  Program(const ModelBuilder& build, std::int64_t batch, bool training);
  void place(const ParamStore& params, const Buffer& slab, const Buffer& inputs);
  void prepare(Device device);
};

Executor::Program::Program(const ModelBuilder& build, std::int64_t batch, bool training) {
  GraphBuilder builder;
  outputs = build(builder, batch);
  forward_end = static_cast<NodeId>(builder.graph().nodes().size());
  if (training) {
    backward = build_backward(builder, outputs.loss);
  } else {
    backward.grads.assign(builder.param_specs().size(), kNone);
    for (std::size_t p = 0; p < builder.param_specs().size(); ++p)
      backward.ready_order.push_back(static_cast<ParamId>(p));
  }
  specs = builder.param_specs();
  graph = std::move(builder).take();
  const std::vector<ValueId> keep = {outputs.loss, outputs.weight, outputs.correct, outputs.logits};
  std::vector<ValueId> external;
  for (const ValueId grad : backward.grads)
    if (grad != kNone) external.push_back(grad);
  plan = plan_memory(graph, keep, external);
}

void Executor::Program::place(const ParamStore& params, const Buffer& slab, const Buffer& inputs) {
  views.resize(graph.values().size());
  std::size_t input_offset = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.kind == ValueKind::param) {
      views[i] = params.value(value.param);
    } else if (value.kind == ValueKind::input) {
      views[i] = inputs.view(input_offset, value.type.shape, value.type.dtype);
      input_offset += aligned(bytes_of(value.type));
    } else if (plan.offset[i] != MemoryPlan::kUnplaced) {
      views[i] = slab.view(plan.offset[i], value.type.shape, value.type.dtype);
    }
  }
  for (std::size_t p = 0; p < backward.grads.size(); ++p) {
    const ValueId grad = backward.grads[p];
    if (grad == kNone) {
      without_grad.push_back(static_cast<ParamId>(p));
    } else {
      views[static_cast<std::size_t>(grad)] = params.grad(static_cast<ParamId>(p));
    }
  }
}

void Executor::Program::prepare(Device device) {
  std::vector<char> seen(graph.params().size(), 0);
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    Step step;
    step.node = &graph.nodes()[id];
    for (const ValueId v : step.node->in) {
      step.in.push_back(views[static_cast<std::size_t>(v)]);
      const ParamId p = graph.value(v).param;
      if (p != kNone && !std::exchange(seen[static_cast<std::size_t>(p)], 1))
        step.first_reads.push_back(p);
    }
    for (const ValueId v : step.node->out) step.out.push_back(views[static_cast<std::size_t>(v)]);
    const NodeRef ref{graph, static_cast<NodeId>(id)};
    if (step.node->op->prepare != nullptr) step.state = step.node->op->prepare(ref, device);
    steps.push_back(std::move(step));
  }
  for (std::size_t p = 0; p < backward.last_reader.size(); ++p)
    if (backward.last_reader[p] != kNone)
      steps[static_cast<std::size_t>(backward.last_reader[p])].last_reads.push_back(
          static_cast<ParamId>(p));
  for (const ParamId p : backward.ready_order)
    if (!backward.final_after.empty() && backward.final_after[static_cast<std::size_t>(p)] != kNone)
      steps[static_cast<std::size_t>(backward.final_after[static_cast<std::size_t>(p)])]
          .final_grads.push_back(p);
}

Executor::Executor(const ModelBuilder& build, const Options& options)
    : Executor(build, options, nullptr) {}

Executor::Executor(const ModelBuilder& build, const Options& options,
                   std::shared_ptr<ParamStore> params)
    : options_(options), params_(std::move(params)) {
  check(!options.batches.empty(), "an executor needs at least one batch size");
  std::size_t slab = 0;
  std::size_t inputs = 0;
  for (const std::int64_t batch : options.batches) {
    auto made = std::make_unique<Program>(build, batch, options.training);
    slab = std::max(slab, made->plan.bytes);
    std::size_t input_bytes = 0;
    for (const Value& value : made->graph.values())
      if (value.kind == ValueKind::input) input_bytes += aligned(bytes_of(value.type));
    inputs = std::max(inputs, input_bytes);
    if (!params_)
      params_ = std::make_shared<ParamStore>(made->specs, made->backward.ready_order,
                                             options.device);
    programs_.emplace(batch, std::move(made));
  }
  slab_ = Buffer(options.device, slab);
  inputs_ = Buffer(options.device, inputs);
  for (auto& [batch, made] : programs_) {
    made->place(*params_, slab_, inputs_);
    made->prepare(options.device);
  }
}

Executor::~Executor() = default;

const Executor::Program& Executor::program(std::int64_t batch) const {
  const auto found = programs_.find(batch);
  if (found == programs_.end())
    fail(Exit::internal, "no plan for a batch of " + std::to_string(batch));
  return *found->second;
}

const Backward& Executor::backward_info() const { return programs_.begin()->second->backward; }

View Executor::input(std::int64_t batch, std::string_view name) const {
  const Program& p = program(batch);
  return p.views[static_cast<std::size_t>(p.graph.input(name))];
}

View Executor::loss(std::int64_t batch) const {
  const Program& p = program(batch);
  return p.views[static_cast<std::size_t>(p.outputs.loss)];
}
View Executor::weight(std::int64_t batch) const {
  const Program& p = program(batch);
  return p.views[static_cast<std::size_t>(p.outputs.weight)];
}
View Executor::correct(std::int64_t batch) const {
  const Program& p = program(batch);
  return p.views[static_cast<std::size_t>(p.outputs.correct)];
}
View Executor::logits(std::int64_t batch) const {
  const Program& p = program(batch);
  return p.views[static_cast<std::size_t>(p.outputs.logits)];
}

void Executor::run_node(Stream& stream, const Program& program, NodeId id, std::int64_t step) {
  const Program::Step& s = program.steps[static_cast<std::size_t>(id)];
  if (node_hook_) stream.host([hook = &node_hook_, node = s.node] { (*hook)(*node); });
  OpContext context{stream, s.in, s.out, s.node->attrs, s.state.get()};
  const bool traced = options_.tracer != nullptr && options_.tracer->wants(step);
  if (!traced) {
    s.node->op->run(context);
    return;
  }
  // The stream runs tasks in order, so one cell carries the begin time to the end task.
  stream.host([this] { span_begin_ = now_ns(); });
  s.node->op->run(context);
  stream.host([this, name = s.node->name.c_str(), step] {
    options_.tracer->add({name, span_begin_, now_ns(), step, TraceRow::compute});
  });
}

void Executor::forward(Stream& stream, std::int64_t batch, const ParamGate* gate,
                       std::int64_t step) {
  const Program& p = program(batch);
  for (NodeId id = 0; id < p.forward_end; ++id) {
    if (gate != nullptr)
      for (const ParamId param : p.steps[static_cast<std::size_t>(id)].first_reads)
        wait_for(stream, gate->ready(param));
    run_node(stream, p, id, step);
  }
}

void Executor::wait_for(Stream& stream, const Event& event) {
  if (event.done() && stream.device().kind == DeviceKind::cpu) {
    stream.wait(event);  // nothing to measure, but a failure must be passed on
    return;
  }
  stream.host([this] { gate_begin_ = now_ns(); });
  stream.wait(event);
  stream.host([this] { gate_wait_ns_.fetch_add(now_ns() - gate_begin_); });
}

void Executor::backward(Stream& stream, std::int64_t batch, GradSink& sink, std::int64_t step) {
  const Program& p = program(batch);
  check(options_.training, "backward of an executor without training");
  // Parameters that only forward reads are free once it is done.
  for (NodeId id = 0; id < p.forward_end; ++id)
    for (const ParamId param : p.steps[static_cast<std::size_t>(id)].last_reads)
      sink.last_read(param, stream.record());
  for (NodeId id = p.backward.first_node; id < static_cast<NodeId>(p.steps.size()); ++id) {
    run_node(stream, p, id, step);
    const Program::Step& s = p.steps[static_cast<std::size_t>(id)];
    if (s.last_reads.empty() && s.final_grads.empty()) continue;
    const Event event = stream.record();
    for (const ParamId param : s.last_reads) sink.last_read(param, event);
    for (const ParamId param : s.final_grads) sink.grad_ready(param, event);
  }
  for (const ParamId param : p.without_grad) {
    const Event event = stream.record();
    if (p.backward.last_reader[static_cast<std::size_t>(param)] == kNone)
      sink.last_read(param, event);
    sink.grad_ready(param, event);
  }
}

}  // namespace sidestep
