// Memory for large fresh outputs on the CPU.
//
// A training step makes a gradient and frees it, again and again, and each time the system would
// hand out new pages, cleared: on two cores 20 ms for 256 MiB, as long as computing the gradient
// takes. So blocks of huge pages are kept when their tensor dies, a few of them, and handed out
// again. Beyond a budget their pages are offered to the system, which takes them when it is short
// of memory, and they cost no page fault until it does (MADV_FREE: 2 ms for 256 MiB, more than all
// else where many cores compute the gradient; so what the next step takes again is not offered).
#pragma once

#include <ATen/core/Tensor.h>

namespace losscli {

// From so many bytes on; below, the C library hands out memory that it has used before.
constexpr int64_t kFreshBytes = int64_t{1} << 25;

// Asks for huge pages under memory of another allocator.
void advise_huge_pages(void* data, int64_t bytes);

// A tensor with contents undefined, of such memory where it is large and on the CPU.
at::Tensor fresh_empty(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options);

}  // namespace losscli
