// The operators of rows whose classes are spread over parts, on tensors:
//
//   losscli::join_parts: the numbers of all parts -> those of the rows, and their losses
//   losscli::part_gradient: the gradient of a part's logits, of the numbers of the rows
//   losscli::join_divergences, losscli::divergence_gradients: the same of divergences
//
// losscli/linear/parts.py calls them, below autograd; they have no derivatives.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string>

#include "parts/kernels.h"
#include "torch/fresh.h"
#include "torch/launch.h"
#include "torch/layout.h"

namespace losscli {
namespace {

using at::Tensor;
using Perhaps = std::optional<Tensor>;

Attached<PartKernels> kernels{};

const void* data_of(const Perhaps& tensor) { return tensor ? tensor->const_data_ptr() : nullptr; }

PartSettings settings_of(int64_t classes, std::optional<int64_t> ignore_index, double smoothing,
                         double temperature, double softcap, double z_loss, bool entropy,
                         bool weighted) {
  PartSettings settings;
  settings.classes = classes;
  settings.may_ignore = ignore_index.has_value();
  settings.ignored = ignore_index.value_or(0);
  settings.entropy = entropy;
  settings.weighted = weighted;
  settings.smoothing = smoothing;
  settings.temperature = temperature;
  settings.softcap = softcap;
  settings.z_loss = z_loss;
  settings.inverse = 1 / temperature;
  settings.inverse_cap = softcap != 0 ? 1 / (temperature * softcap) : 0;
  return settings;
}

template <typename Arguments>
void run(const char* name, const Tensor& like, const Arguments& arguments,
         Status (*PartKernels::*entry)(const Arguments&, const LaunchContext&)) {
  if (arguments.rows == 0) return;
  const PartKernels& found = kernels_in(kernels, name, like.device());
  const Launch on(like);
  const Status status = (found.*entry)(arguments, on.context);
  TORCH_CHECK(status.ok(), name, " of ", like.sizes(), " on ", like.device(), ": ", status.message);
}

// `numbers`: (parts, numbers, rows), of which the last two dimensions are dense.
JoinArguments joining(const Tensor& numbers, const Tensor& widths, int64_t stop, int64_t rank,
                      int64_t first) {
  TORCH_INTERNAL_ASSERT(numbers.dim() == 3 && numbers[0].is_contiguous() && widths.dim() == 1);
  JoinArguments a;
  a.wide = numbers.scalar_type() == at::kDouble;
  a.parts = numbers.size(0);
  a.rows = numbers.size(2);
  a.numbers = numbers.const_data_ptr();
  a.part_stride = numbers.stride(0);
  a.widths = widths.const_data_ptr();
  a.widths_dtype = dtype_of(widths.scalar_type());
  a.width_stride = widths.stride(0);
  a.stop = stop;
  a.rank = rank;
  a.first = first;
  return a;
}

std::tuple<Tensor, Tensor> join_parts(const Tensor& numbers, const Tensor& widths,
                                      const Tensor& target, const Perhaps& total_weight,
                                      int64_t start, int64_t stop, int64_t rank, int64_t first,
                                      int64_t classes, std::optional<int64_t> ignore_index,
                                      double smoothing, double temperature, double softcap,
                                      double z_loss, bool entropy, bool weighted) {
  JoinArguments a = joining(numbers, widths, stop, rank, first);
  a.settings = settings_of(classes, ignore_index, smoothing, temperature, softcap, z_loss, entropy,
                           weighted);
  const Tensor targets = target.contiguous();
  const Tensor whole = at::empty(numbers.sizes().slice(1), numbers.options());
  const Tensor values = at::empty({entropy ? 2 : kRowTotals, a.rows}, numbers.options());
  a.start = start;
  a.targets = targets.const_data_ptr<int64_t>();
  a.total_weight = data_of(total_weight);
  a.whole = whole.mutable_data_ptr();
  a.values = values.mutable_data_ptr();
  run("join_parts", numbers, a, &PartKernels::join);
  return {whole, values};
}

Tensor join_divergences(const Tensor& numbers, const Tensor& widths, const Perhaps& mask,
                        int64_t stop, int64_t rank, int64_t first, double temperature) {
  JoinArguments a = joining(numbers, widths, stop, rank, first);
  a.settings.temperature = temperature;
  const Tensor whole = at::empty(numbers.sizes().slice(1), numbers.options());
  a.mask = static_cast<const bool*>(data_of(mask));
  a.whole = whole.mutable_data_ptr();
  run("join_divergences", numbers, a, &PartKernels::join_divergences);
  return whole;
}

// Takes an operand and makes its gradient; returns what keeps the memory of the first.
Tensor take_logits(PartGradientArguments& a, int k, const Tensor& logits, Tensor* gradient) {
  const Tensor taken = logits.stride(1) == 1 || logits.size(1) <= 1 ? logits : logits.contiguous();
  a.dtype = dtype_of(logits.scalar_type());
  a.rows = logits.size(0);
  a.width = logits.size(1);
  a.logits[k] = taken.const_data_ptr();
  a.row_strides[k] = taken.stride(0);
  if (gradient) {
    *gradient = fresh_empty(logits.sizes(), {a.width, 1}, logits.options());
    a.gradients[k] = gradient->mutable_data_ptr();
  }
  if (a.width == 0) a.rows = 0;
  return taken;
}

void take_incoming(PartGradientArguments& a, const Tensor& incoming) {
  a.incoming = incoming.const_data_ptr();
  a.incoming_dtype = dtype_of(incoming.scalar_type());
  if (incoming.dim() > 0) a.incoming_stride = incoming.stride(-1);
  if (incoming.dim() > 1) a.incoming_output_stride = incoming.stride(0);
}

Tensor part_gradient(const Tensor& incoming, const Tensor& logits, const Tensor& target,
                     const Tensor& whole, const Perhaps& totals, const Perhaps& weight,
                     const Perhaps& total_weight, int64_t first, int64_t classes,
                     std::optional<int64_t> ignore_index, double smoothing, double temperature,
                     double softcap, double z_loss, bool entropy, bool weighted) {
  PartGradientArguments a;
  a.settings = settings_of(classes, ignore_index, smoothing, temperature, softcap, z_loss, entropy,
                           weighted);
  Tensor gradient;
  const Tensor taken = take_logits(a, 0, logits, &gradient), targets = target.contiguous();
  take_incoming(a, incoming);
  a.first = first;
  a.targets = targets.const_data_ptr<int64_t>();
  a.whole = whole.const_data_ptr();
  a.weight = data_of(weight);
  a.total_weight = data_of(total_weight);
  a.totals = static_cast<const double*>(data_of(totals));
  run("part_gradient", logits, a, &PartKernels::gradient);
  return gradient;
}

// An empty tensor for a gradient that is not wanted.
std::tuple<Tensor, Tensor> divergence_gradients(const Tensor& incoming, const Tensor& input,
                                                const Tensor& target, const Perhaps& mask,
                                                const Tensor& whole, double temperature,
                                                std::array<bool, 2> wanted) {
  PartGradientArguments a;
  a.settings.temperature = temperature;
  a.settings.inverse = 1 / temperature;
  Tensor gradients[2], taken[2];
  for (int k = 0; k < 2; ++k) {
    gradients[k] = at::empty({0}, input.options());
    taken[k] = take_logits(a, k, k == 0 ? input : target, wanted[k] ? &gradients[k] : nullptr);
  }
  take_incoming(a, incoming);
  a.mask = static_cast<const bool*>(data_of(mask));
  a.whole = whole.const_data_ptr();
  run("divergence_gradients", input, a, &PartKernels::divergence_gradients);
  return {gradients[0], gradients[1]};
}

}  // namespace
}  // namespace losscli

TORCH_LIBRARY_FRAGMENT(losscli, library) {
  const std::string settings =
      "int classes, int? ignore_index, float label_smoothing, float temperature, float softcap, "
      "float z_loss, bool entropy, bool weighted";
  library.def(("join_parts(Tensor numbers, Tensor widths, Tensor target, Tensor? total_weight, "
               "int start, int stop, int rank, int first, " +
               settings + ") -> (Tensor, Tensor)")
                  .c_str());
  library.def(("part_gradient(Tensor incoming, Tensor logits, Tensor target, Tensor whole, "
               "Tensor? totals, Tensor? weight, Tensor? total_weight, int first, " +
               settings + ") -> Tensor")
                  .c_str());
  library.def(
      "join_divergences(Tensor numbers, Tensor widths, Tensor? mask, int stop, int rank, int "
      "first, float temperature) -> Tensor");
  library.def(
      "divergence_gradients(Tensor incoming, Tensor input, Tensor target, Tensor? mask, Tensor "
      "whole, float temperature, bool[2] wanted) -> (Tensor, Tensor)");
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
    library.impl("join_parts", torch::dispatch(key, TORCH_FN(losscli::join_parts)));
    library.impl("part_gradient", torch::dispatch(key, TORCH_FN(losscli::part_gradient)));
    library.impl("join_divergences", torch::dispatch(key, TORCH_FN(losscli::join_divergences)));
    library.impl("divergence_gradients",
                 torch::dispatch(key, TORCH_FN(losscli::divergence_gradients)));
  }
  for (const char* name :
       {"join_parts", "part_gradient", "join_divergences", "divergence_gradients"})
    library.impl(
        name, torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
}

LOSSCLI_EXPORT const char* losscli_attach_part_kernels(const char* device,
                                                       const losscli::PartKernels* table) {
  if (table->interface != losscli::kInterface)
    return "parts: the kernels are of another version of losscli; run `losscli build --force`";
  losscli::kernels[std::string(device) == "cpu" ? 0 : 1] = table;
  return nullptr;
}
