#include "torch/tangents.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "torch/stack.h"

namespace losscli {
namespace {

using at::Tensor;

// Level 0 is the only one: torch.func nests by wrapping tensors.
constexpr uint64_t kLevel = 0;

Tensor tangent_of(const Tensor& tensor) { return tensor._fw_grad(kLevel); }

Tensor primal_of(const Tensor& tensor) {
  return tangent_of(tensor).defined() ? tensor._fw_primal(kLevel) : tensor;
}

Tensors primals_of(TensorList tensors) {
  Tensors primals;
  for (const Tensor& tensor : tensors) primals.push_back(primal_of(tensor));
  return primals;
}

void set_tangent(const Tensor& result, const Tensor& tangent) {
  if (tangent.defined())
    result._set_fw_grad(tangent.to(result.scalar_type()), kLevel, /*is_inplace_op=*/false);
}

void add_to(Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; }

}  // namespace

bool have_tangents(TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    return tensor.defined() && tangent_of(tensor).defined();
  });
}

void set_loss_tangent(const Call& call, TensorList operands, const Tensor& loss) {
  // 16 bits are too few for the terms of a sum.
  const auto type = loss.scalar_type();
  const auto wide = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  c10::SymDimVector shape;
  for (const Tensor& operand : operands)
    shape = at::infer_size_symdimvector(shape, operand.sym_sizes());

  const bool reduced = call.reduction != Reduction::none;
  Wanted wanted{};
  Tensors primals = primals_of(operands);
  for (size_t k = 0; k < operands.size(); ++k) {
    wanted[k] = tangent_of(operands[k]).defined();
    if (!wanted[k]) continue;
    primals[k] = primals[k].to(wide);
    // Without a reduction the gradient is that of each element.
    if (!reduced) primals[k] = primals[k].expand_symint(shape);
  }
  Call sum = call;
  sum.reduction = reduced ? Reduction::sum : Reduction::none;
  Tensor grad_output = at::ones({}, loss.options().dtype(wide));
  if (!reduced) grad_output = grad_output.expand_symint(shape);
  const Tensors gradients = call_backward(sum, grad_output, primals, wanted);

  Tensor tangent;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!wanted[k]) continue;
    const Tensor product = gradients[k] * tangent_of(operands[k]);
    add_to(tangent, reduced ? product.sum() : product);
  }
  if (call.reduction == Reduction::mean) {
    c10::SymInt size = 1;
    for (const c10::SymInt& extent : shape) size = size * extent;
    tangent = tangent / at::Scalar(size);
  }
  set_tangent(loss, tangent);
}

void set_gradient_tangents(const Call& call, const Tensor& grad_output, TensorList operands,
                           const Wanted& wanted, TensorList gradients) {
  const size_t count = operands.size();
  const Tensors primals = primals_of(operands);
  Tensors tangents(count);
  const Tensor incoming = tangent_of(grad_output);
  if (incoming.defined()) tangents = call_backward(call, incoming, primals, wanted);
  if (have_tangents(operands)) {
    Tensors vectors;
    for (const Tensor& operand : operands) {
      const Tensor tangent = tangent_of(operand);
      vectors.push_back(tangent.defined() ? tangent : at::zeros_like(operand));
    }
    const Tensors products = call_double_backward(call, vectors, primal_of(grad_output), primals);
    // The Hessian is symmetric, so that its product with the tangents from either side is the same.
    for (size_t k = 0; k < count; ++k)
      if (wanted[k]) add_to(tangents[k], products[1 + k]);
  }
  for (size_t k = 0; k < count; ++k)
    if (wanted[k]) set_tangent(gradients[k], tangents[k]);
}

}  // namespace losscli
