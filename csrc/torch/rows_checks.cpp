// What losses over rows refuse, in the same words for all of them; with the exceptions of
// PyTorch's own functions, where it has them.
#include "torch/checks.h"
#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;

// One operand beside the first; `rows` is the shape of the rows.
void check_operand(const RowLossDefinition& loss, size_t k, const Tensor& operand,
                   const Tensor& first, at::IntArrayRef rows, int64_t length) {
  const std::string& name = loss.operand_names[k];
  const std::string& first_name = loss.operand_names[0];
  const auto type = operand.scalar_type();
  if (loss.is_row(k)) {
    TORCH_CHECK(operand.sizes() == first.sizes(), loss.name, ": ", name, " must have the shape of ",
                first_name, " ", first.sizes(), ", but has shape ", operand.sizes());
  } else if (loss.is_weight(k)) {
    TORCH_CHECK(operand.dim() == 1 && operand.numel() == length, loss.name, ": ", name,
                " must hold a number for each of the ", length, " classes of ", first_name, " ",
                first.sizes(), ", but has shape ", operand.sizes());
    TORCH_CHECK(operand.is_floating_point(), loss.name, ": ", name,
                " must have a floating dtype, but is ", type);
    TORCH_CHECK(!loss.has_labels || type == first.scalar_type(), loss.name, ": ", name,
                " must have the dtype of ", first_name, ", ", first.scalar_type(), ", but is ",
                type);
  } else {
    const auto wrong = [&] {
      return c10::str(loss.name, ": ", name, " must have the shape of the rows of ", first_name,
                      " ", first.sizes(), ", ", rows, ", but has shape ", operand.sizes());
    };
    // PyTorch tells another size of the batch from other shapes.
    const bool batched = loss.second_dimension && !rows.empty();
    TORCH_CHECK_VALUE(!batched || (operand.dim() > 0 && operand.size(0) == rows[0]), wrong());
    TORCH_CHECK(operand.sizes() == rows, wrong());
    TORCH_CHECK(loss.roles[k] != kMaskRole || type == at::kBool, loss.name, ": ", name,
                " must be bool, but is ", type);
    TORCH_CHECK(
        loss.roles[k] != kLabelRole || type == at::kLong || type == at::kInt || type == at::kByte,
        loss.name, ": ", name, " must hold class numbers in int64, int32 or uint8, but is ", type);
  }
}

}  // namespace

at::ScalarType RowLossDefinition::type_of(TensorList operands) const {
  auto type = operands[0].scalar_type();
  for (size_t k = 1; k < operands.size(); ++k)
    if (operands[k].defined() && (is_row(k) || (is_weight(k) && !has_labels)))
      type = c10::promoteTypes(type, operands[k].scalar_type());
  return type;
}

at::ScalarType RowLossDefinition::check(const Call& call, TensorList operands) const {
  check_places(call, operands);
  const Tensor& first = operands[0];
  const std::string& first_name = operand_names[0];
  TORCH_CHECK_VALUE(first.dim() > 0, name, ": ", first_name,
                    " must have a dimension along which its rows lie, but is a single number");
  const auto rows = without_row(first.sizes());
  const int64_t length = first.size(row_dimension(first.dim()));
  for (size_t k = 1; k < operands.size(); ++k)
    if (operands[k].defined()) check_operand(*this, k, operands[k], first, rows, length);
  TORCH_CHECK(outputs(call) == 1 || call.reduction == Reduction::none, name,
              ": several values of a row have no reduction");
  const auto type = type_of(operands);
  TORCH_CHECK_TYPE(is_computable(type), name, ": ", first_name,
                   " must be float32, float64, float16 or bfloat16, but is ", type,
                   "; convert it with .float()");
  return type;
}

}  // namespace losscli
