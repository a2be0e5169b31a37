// What losses over rows refuse, in the same words for all of them; with the exceptions of
// PyTorch's own functions, where it has them.
#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;

bool is_computable(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

// One operand beside the first; `rows` is the shape of the rows.
void check_operand(const RowCall& call, size_t k, const Tensor& operand, const Tensor& first,
                   at::IntArrayRef rows, int64_t length) {
  const RowLossDefinition& loss = *call.loss;
  const char* const name = loss.operand_words[k];
  const char* const first_name = loss.operand_words[0];
  const auto type = operand.scalar_type();
  if (loss.is_row(k)) {
    TORCH_CHECK(operand.sizes() == first.sizes(), call.name(), ": ", name,
                " must have the shape of ", first_name, " ", first.sizes(), ", but has shape ",
                operand.sizes());
  } else if (loss.is_weight(k)) {
    TORCH_CHECK(operand.dim() == 1 && operand.numel() == length, call.name(), ": ", name,
                " must hold a number for each of the ", length, " classes of ", first_name, " ",
                first.sizes(), ", but has shape ", operand.sizes());
    TORCH_CHECK(operand.is_floating_point(), call.name(), ": ", name,
                " must have a floating dtype, but is ", type);
    TORCH_CHECK(!loss.has_labels() || type == first.scalar_type(), call.name(), ": ", name,
                " must have the dtype of ", first_name, ", ", first.scalar_type(), ", but is ",
                type);
  } else {
    const auto wrong = [&] {
      return c10::str(call.name(), ": ", name, " must have the shape of the rows of ", first_name,
                      " ", first.sizes(), ", ", rows, ", but has shape ", operand.sizes());
    };
    // PyTorch tells another size of the batch from other shapes.
    const bool batched = loss.second_dimension && !rows.empty();
    TORCH_CHECK_VALUE(!batched || (operand.dim() > 0 && operand.size(0) == rows[0]), wrong());
    TORCH_CHECK(operand.sizes() == rows, wrong());
    TORCH_CHECK(loss.roles[k] != kMaskRole || type == at::kBool, call.name(), ": ", name,
                " must be bool, but is ", type);
    TORCH_CHECK(
        loss.roles[k] != kLabelRole || type == at::kLong || type == at::kInt || type == at::kByte,
        call.name(), ": ", name, " must hold class numbers in int64, int32 or uint8, but is ",
        type);
  }
}

}  // namespace

at::ScalarType type_of(const RowCall& call, at::ArrayRef<Tensor> operands) {
  const RowLossDefinition& loss = *call.loss;
  auto type = operands[0].scalar_type();
  for (size_t k = 1; k < operands.size(); ++k)
    if (operands[k].defined() && (loss.is_row(k) || (loss.is_weight(k) && !loss.has_labels())))
      type = c10::promoteTypes(type, operands[k].scalar_type());
  return type;
}

void check_call(const RowCall& call, at::ArrayRef<Tensor> operands) {
  const RowLossDefinition& loss = *call.loss;
  const Tensor& first = operands[0];
  const char* const first_name = loss.operand_words[0];
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].defined()) continue;
    const char* const name = loss.operand_words[k];
    TORCH_CHECK(operands[k].device() == first.device(), call.name(), ": ", first_name, " and ",
                name, " must be on one device, but are on ", first.device(), " and ",
                operands[k].device(), "; move one with .to()");
    TORCH_CHECK_NOT_IMPLEMENTED(operands[k].layout() == at::kStrided, call.name(), ": ", name,
                                " must be a dense tensor, but is ", operands[k].layout(),
                                "; convert it with .to_dense()");
  }
  TORCH_CHECK_VALUE(first.dim() > 0, call.name(), ": ", first_name,
                    " must have a dimension along which its rows lie, but is a single number");
  const auto rows = without_row(call, first.sizes());
  const int64_t length = first.size(loss.row_dimension(first.dim()));
  for (size_t k = 1; k < operands.size(); ++k)
    if (operands[k].defined()) check_operand(call, k, operands[k], first, rows, length);
  TORCH_CHECK(call.outputs() == 1 || call.reduction == Reduction::none, call.name(),
              ": two values of a row have no reduction");
  const auto type = type_of(call, operands);
  TORCH_CHECK_TYPE(is_computable(type), call.name(), ": ", first_name,
                   " must be float32, float64, float16 or bfloat16, but is ", type,
                   "; convert it with .float()");
}

}  // namespace losscli
