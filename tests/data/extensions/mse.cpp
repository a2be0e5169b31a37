
#include <torch/extension.h>
#include "neighbour.cuh"
// torch::Tensor commented_out(torch::Tensor input) {}
torch::Tensor mse_forward(const torch::Tensor& input, const torch::Tensor& target) {
  return (input - target).square().mean();
}
std::vector<torch::Tensor> mse_backward(torch::Tensor grad_output, at::Tensor input,
                                        at::Tensor target) {
  auto gradient = 2 * (input - target) / input.numel() * grad_output;
  return {gradient, -gradient};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("mse_forward", &mse_forward, "the loss");
  m.def("mse_backward", &mse_backward);
}
