#include "torch/fresh.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>

#include <array>
#include <mutex>
#include <utility>

namespace losscli {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

// The loss, both gradients, and one more: what a step of training frees at a time.
constexpr size_t kKept = 4;

// Bytes of kept blocks, the ones freed last, whose pages are not offered to the system.
constexpr size_t kHeldBytes = size_t{1} << 28;

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  bool offered = false;
};

#if defined(MADV_HUGEPAGE) && defined(MADV_FREE)
// Whole huge pages, none of them touched; no data where the system refuses.
Block map_block(size_t bytes) {
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const mapped =
      mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {};
  auto* const begin = static_cast<char*>(mapped);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + whole, kHugePage - before);
  madvise(begin + before, whole, MADV_HUGEPAGE);
  return {begin + before, whole, false};
}

// Lets the system take the pages when it wants them. It does not of locked memory: then they stay.
void offer_pages(Block& block) {
  if (!block.offered) madvise(block.data, block.bytes, MADV_FREE);
  block.offered = true;
}
#else
Block map_block(size_t) { return {}; }
void offer_pages(Block&) {}
#endif

// Blocks without an owner, the one freed last in front. The lock is only ever tried: who does not
// get it does without the cache, and so does, for good, a child forked while somebody held it.
class Cache {
 public:
  // A kept block that fits and is at most a quarter too large, or none.
  Block take(size_t bytes) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    for (size_t i = 0; i < kKept; ++i) {
      if (blocks_[i].bytes < bytes || blocks_[i].bytes > bytes + bytes / 4 + kHugePage) continue;
      Block block = std::exchange(blocks_[i], {});
      for (; i + 1 < kKept; ++i) std::swap(blocks_[i], blocks_[i + 1]);
      block.offered = false;
      return block;
    }
    return {};
  }

  // Keep a block; return the one to be unmapped for it.
  Block keep(Block block) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return block;
    for (Block& kept : blocks_) std::swap(kept, block);
    size_t held = 0;
    for (Block& kept : blocks_) {
      held += kept.bytes;
      if (kept.data && held > kHeldBytes) offer_pages(kept);
    }
    return block;
  }

 private:
  std::mutex mutex_;
  std::array<Block, kKept> blocks_;
};

// Never destroyed: tensors may outlive everything else.
Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

void release(void* context) {
  auto* const block = static_cast<Block*>(context);
  c10::profiledCPUMemoryReporter().Delete(block->data);
  const Block left = cache().keep(*block);
  if (left.data) munmap(left.data, left.bytes);
  delete block;
}

// PyTorch's own allocator for all that is small, or that the system refuses.
class FreshAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    Block block;
    if (bytes >= static_cast<size_t>(kFreshBytes)) {
      block = cache().take(bytes);
      if (!block.data) block = map_block(bytes);
    }
    if (!block.data) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(block.data, bytes);
    return {block.data, new Block(block), &release, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void advise_huge_pages(void* data, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  auto* const begin = static_cast<char*>(data);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  const size_t whole = (static_cast<size_t>(bytes) - before) / kHugePage * kHugePage;
  if (static_cast<size_t>(bytes) > before && whole > 0)
    madvise(begin + before, whole, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

at::Tensor fresh_empty(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const int64_t bytes =
      c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  if (!options.device().is_cpu() || bytes < kFreshBytes)
    return at::empty_strided(sizes, strides, options);
  static FreshAllocator& allocator = *new FreshAllocator;
  return at::detail::empty_strided_generic(sizes, strides, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::CPU), type);
}

}  // namespace losscli
