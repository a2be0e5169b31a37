// What a loss over rows refuses: the same as PyTorch's own function, with the same exceptions.
#include <cmath>

#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;

bool is_computable(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

void check_settings(const RowCall& call) {
  TORCH_CHECK(call.label_smoothing >= 0 && call.label_smoothing <= 1, call.name(),
              ": label_smoothing must be between 0 and 1, but is ", call.label_smoothing);
  TORCH_CHECK_VALUE(std::isfinite(call.temperature) && call.temperature > 0, call.name(),
                    ": temperature must be above 0, but is ", call.temperature);
  TORCH_CHECK_VALUE(std::isfinite(call.softcap) && call.softcap >= 0, call.name(),
                    ": softcap must be at least 0, but is ", call.softcap);
  TORCH_CHECK_VALUE(std::isfinite(call.z_loss) && call.z_loss >= 0, call.name(),
                    ": z_loss must be at least 0, but is ", call.z_loss);
}

// Class numbers in the shape of the rows: that of the input without its classes.
void check_class_numbers(const RowCall& call, const Tensor& input, const Tensor& target) {
  const auto type = target.scalar_type();
  TORCH_CHECK(type == at::kLong || type == at::kInt || type == at::kByte, call.name(),
              ": target must hold class numbers in int64, int32 or uint8, or have the shape of "
              "input ",
              input.sizes(), " and hold probabilities, but has shape ", target.sizes(), " and is ",
              type);
  if (input.dim() == 1) {
    // PyTorch takes one row for a batch of one.
    TORCH_CHECK(target.dim() == 0 || target.sizes() == at::IntArrayRef({1}), call.name(),
                ": target must be one class number for input ", input.sizes(), ", but has shape ",
                target.sizes());
    return;
  }
  TORCH_CHECK_VALUE(target.dim() > 0 && target.size(0) == input.size(0), call.name(),
                    ": target must have the batch size of input ", input.sizes(), ", ",
                    input.size(0), ", but has shape ", target.sizes());
  TORCH_CHECK(target.sizes().slice(1) == input.sizes().slice(2), call.name(),
              ": target must have the shape of input ", input.sizes(),
              " without its classes, dimension 1, but has shape ", target.sizes());
}

void check_probabilities(const RowCall& call, const Tensor& target) {
  TORCH_CHECK(target.is_floating_point(), call.name(),
              ": target has the shape of input and so must hold probabilities in a floating dtype, "
              "but is ",
              target.scalar_type(), "; class numbers have no dimension of classes");
  TORCH_CHECK(call.ignore_index < 0, call.name(),
              ": ignore_index is not supported for a target of probabilities, but is ",
              call.ignore_index);
}

void check_weight(const RowCall& call, const RowOperands& operands) {
  const Tensor& weight = operands.weight;
  const int64_t classes = operands.input.size(operands.input.dim() == 1 ? 0 : 1);
  TORCH_CHECK(weight.dim() == 1 && weight.numel() == classes, call.name(),
              ": weight must hold a number for each of the ", classes, " classes, but has shape ",
              weight.sizes());
  TORCH_CHECK(weight.is_floating_point(), call.name(),
              ": weight must have a floating dtype, but is ", weight.scalar_type());
  TORCH_CHECK(operands.has_probabilities() || weight.scalar_type() == operands.input.scalar_type(),
              call.name(), ": weight must have the dtype of input, ", operands.input.scalar_type(),
              ", but is ", weight.scalar_type());
}

}  // namespace

at::ScalarType type_of(const RowOperands& operands) {
  auto type = operands.input.scalar_type();
  if (!operands.has_probabilities()) return type;
  type = c10::promoteTypes(type, operands.target.scalar_type());
  return operands.weight.defined() ? c10::promoteTypes(type, operands.weight.scalar_type()) : type;
}

void check_call(const RowCall& call, const RowOperands& operands) {
  const Tensor &input = operands.input, &target = operands.target;
  check_settings(call);
  const auto tensors = operands.tensors();
  for (size_t k = 0; k < tensors.size(); ++k) {
    TORCH_CHECK(tensors[k].device() == input.device(), call.name(), ": input and ",
                kRowOperandNames[k], " must be on one device, but are on ", input.device(), " and ",
                tensors[k].device(), "; move one with .to()");
    TORCH_CHECK_NOT_IMPLEMENTED(tensors[k].layout() == at::kStrided, call.name(), ": ",
                                kRowOperandNames[k], " must be a dense tensor, but is ",
                                tensors[k].layout(), "; convert it with .to_dense()");
  }
  TORCH_CHECK_VALUE(input.dim() > 0, call.name(),
                    ": input must have a dimension of classes, but is a single number");
  if (operands.has_probabilities())
    check_probabilities(call, target);
  else
    check_class_numbers(call, input, target);
  TORCH_CHECK_TYPE(is_computable(input.scalar_type()) && is_computable(type_of(operands)),
                   call.name(), ": input must be float32, float64, float16 or bfloat16, but is ",
                   input.scalar_type(), "; convert it with .float()");
  if (operands.weight.defined()) check_weight(call, operands);
}

}  // namespace losscli
