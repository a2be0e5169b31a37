// What losses over rows refuse, in the same words for all of them; with the exceptions of
// PyTorch's own functions, where it has them.
#include <ATen/ExpandUtils.h>

#include "torch/checks.h"
#include "torch/rows.h"
#include "torch/stack.h"

namespace losscli {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Sizes = c10::SmallVector<int64_t, 5>;

Sizes without(IntArrayRef of, int64_t dimension) {
  Sizes others(of.begin(), of.end());
  others.erase(others.begin() + dimension);
  return others;
}

// What makes a tensor of one shape one of another, to follow a message, as `remedy` of
// losscli/losses/shapes.py says it; empty where there is no plain way.
std::string remedy(const std::string& name, IntArrayRef shape, IntArrayRef due) {
  const auto adds_one = [](IntArrayRef longer, IntArrayRef shorter, int64_t d) {
    return longer.size() == shorter.size() + 1 && longer[d] == 1 &&
           IntArrayRef(without(longer, d)) == shorter;
  };
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    if (adds_one(shape, due, d)) return c10::str("; write ", name, ".squeeze(", d, ")");
  for (int64_t d = 0; d < static_cast<int64_t>(due.size()); ++d)
    if (adds_one(due, shape, d)) return c10::str("; write ", name, ".unsqueeze(", d, ")");
  const bool of_as_many = c10::multiply_integers(shape) == c10::multiply_integers(due);
  if (due.size() == 1 && of_as_many) return c10::str("; write ", name, ".flatten()");
  const std::string brackets = c10::str(due);
  const std::string extents = brackets.substr(1, brackets.size() - 2);
  if (shape.size() == 1 && of_as_many) return c10::str("; write ", name, ".reshape(", extents, ")");
  if (at::is_expandable_to(shape, due))
    return c10::str("; to repeat it write ", name, ".expand(", extents, ")");
  return "";
}

// Where an operand has the shape of the first without another dimension than that of the rows: the
// dimension that rows lie along, and the ways to it.
std::string row_remedy(const RowLossDefinition& loss, const std::string& name, IntArrayRef shape,
                       IntArrayRef first) {
  const auto dimensions = static_cast<int64_t>(first.size());
  const int64_t row = loss.row_dimension(dimensions);
  const std::string& first_name = loss.operand_names[0];
  for (int64_t d = dimensions - 1; d >= 0; --d) {
    if (d == row || IntArrayRef(without(first, d)) != shape) continue;
    std::string ways =
        c10::str("; the classes are dimension ", row, " of ", first_name, ": write ");
    if (d == dimensions - 1 && d > row)
      ways += c10::str(first_name, ".flatten(0, ", d - 1, ") and ", name, ".flatten(0, ", d - 1,
                       "), or ");
    const bool adjacent = std::abs(d - row) == 1;
    return c10::str(ways, first_name, adjacent ? ".transpose(" : ".movedim(",
                    adjacent ? std::min(d, row) : d, ", ", adjacent ? std::max(d, row) : row, ")");
  }
  return "";
}

// One operand beside the first; `rows` is the shape of the rows.
void check_operand(const RowLossDefinition& loss, size_t k, const Tensor& operand,
                   const Tensor& first, at::IntArrayRef rows, int64_t length) {
  const std::string& name = loss.operand_names[k];
  const std::string& first_name = loss.operand_names[0];
  const auto type = operand.scalar_type();
  if (loss.is_row(k)) {
    TORCH_CHECK(operand.sizes() == first.sizes(), loss.name, ": ", name, " must have the shape of ",
                first_name, " ", first.sizes(), ", but has shape ", operand.sizes(),
                remedy(name, operand.sizes(), first.sizes()));
  } else if (loss.is_weight(k)) {
    TORCH_CHECK(operand.dim() == 1 && operand.numel() == length, loss.name, ": ", name,
                " must hold a number for each of the ", length, " classes of ", first_name, " ",
                first.sizes(), ", but has shape ", operand.sizes(),
                remedy(name, operand.sizes(), length));
    TORCH_CHECK(operand.is_floating_point(), loss.name, ": ", name,
                " must have a floating dtype, but is ", type);
    TORCH_CHECK(!loss.has_labels || type == first.scalar_type(), loss.name, ": ", name,
                " must have the dtype of ", first_name, ", ", first.scalar_type(), ", but is ",
                type);
  } else {
    const auto wrong = [&] {
      std::string ways = row_remedy(loss, name, operand.sizes(), first.sizes());
      if (ways.empty()) ways = remedy(name, operand.sizes(), rows);
      return c10::str(loss.name, ": ", name, " must have the shape of the rows of ", first_name,
                      " ", first.sizes(), ", ", rows, ", but has shape ", operand.sizes(), ways);
    };
    const bool is_number = type == at::kLong || type == at::kInt || type == at::kByte;
    // PyTorch tells another size of the batch, and numbers of a batch for a single row, from other
    // shapes.
    const bool other_batch = rows.empty() ? operand.dim() == 1 && is_number
                                          : operand.dim() == 0 || operand.size(0) != rows[0];
    TORCH_CHECK_VALUE(!loss.second_dimension || !other_batch, wrong());
    TORCH_CHECK(operand.sizes() == rows, wrong());
    TORCH_CHECK(loss.roles[k] != kMaskRole || type == at::kBool, loss.name, ": ", name,
                " must be bool, but is ", type);
    TORCH_CHECK(loss.roles[k] != kLabelRole || is_number, loss.name, ": ", name,
                " must hold class indices in int64, int32 or uint8, but is ", type,
                c10::isIntegralType(type, true) ? "; convert with .long()"
                : has_operator(loss, "_with_probabilities")
                    ? c10::str("; probabilities have the shape of ", first_name)
                    : "");
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
  for (size_t k = 0; k < operands.size(); ++k)
    if (!is_weight(k) && roles[k] != kMaskRole) check_given(call, operands, k);
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
                   conversion(type));
  return type;
}

}  // namespace losscli
