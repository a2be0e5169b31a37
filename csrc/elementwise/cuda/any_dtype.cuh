// Reading and writing elements of a dtype that is known only when the kernel runs. The choice is
// the same for all threads and made outside the loops over a thread's elements: the loads of all
// operands are on their way before the first is converted.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda/memory.cuh"

namespace losscli::cuda {

template <int bytes>
using BitsOf = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

// Neighbouring elements as they lie in memory, in words of Real's size. Where items are smaller the
// first words hold them all; items of 8 bytes are converted to float as they are read.
template <typename Real, int count>
struct Raw {
  using Word = BitsOf<sizeof(Real)>;
  Word words[count];
};

// Reads so many bytes, to which `from` is aligned (but 32 to 16), into the first words.
template <int bytes, typename Word>
__device__ __forceinline__ void read_bytes(const void* from, Word* words) {
  if constexpr (bytes >= 16) {
#pragma unroll
    for (int part = 0; part < bytes / 16; ++part) {
      const uint4 read = __ldg(static_cast<const uint4*>(from) + part);
      Word* const to = words + part * 16 / sizeof(Word);
      if constexpr (sizeof(Word) == 4) {
        to[0] = read.x, to[1] = read.y, to[2] = read.z, to[3] = read.w;
      } else {
        to[0] = read.x | static_cast<Word>(read.y) << 32;
        to[1] = read.z | static_cast<Word>(read.w) << 32;
      }
    }
  } else if constexpr (bytes == 8 && sizeof(Word) == 4) {
    const uint2 read = __ldg(static_cast<const uint2*>(from));
    words[0] = read.x, words[1] = read.y;
  } else if constexpr (bytes == 8) {
    words[0] = __ldg(static_cast<const unsigned long long*>(from));
  } else {
    words[0] = __ldg(static_cast<const BitsOf<bytes>*>(from));
  }
}

// One element of a type, from the words that hold it.
template <typename Stored, typename Word>
__device__ __forceinline__ Stored element_of(const Word* words, int k) {
  constexpr int kEach = sizeof(Word) / sizeof(Stored);
  const auto bits =
      static_cast<BitsOf<sizeof(Stored)>>(words[k / kEach] >> (k % kEach * 8 * sizeof(Stored)));
  Stored stored;
  memcpy(&stored, &bits, sizeof stored);
  return stored;
}

template <typename Real, typename Stored>
__device__ __forceinline__ Real convert(Stored stored) {
  if constexpr (std::is_integral_v<Stored>) {
    return static_cast<Real>(stored);
  } else {
    return static_cast<Real>(widen(stored));
  }
}

// Element k of a type, converted. A bfloat16 is the upper half of a float: from the upper half of a
// word it takes one instruction, where the compiler shifts down and up.
template <typename Real, typename Stored, typename Word>
__device__ __forceinline__ Real converted_element(const Word* words, int k) {
  if constexpr (std::is_same_v<Stored, __nv_bfloat16> && sizeof(Word) == 4) {
    return __uint_as_float(k % 2 == 0 ? words[k / 2] << 16 : words[k / 2] & 0xffff0000u);
  } else {
    return convert<Real>(element_of<Stored>(words, k));
  }
}

template <typename Real>
__device__ __forceinline__ typename Raw<Real, 1>::Word bits_of(Real value) {
  typename Raw<Real, 1>::Word bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Reads `loads` times `count` neighbouring elements, the u-th from address(u) on; where `repeats`,
// one element that stands for all. `item` is the size of an item where it is known, else 0.
template <int item = 0, int loads, int count, typename Real, typename Address>
__device__ __forceinline__ void read_elements(DType dtype, bool repeats, Address address,
                                              Raw<Real, count> (&raw)[loads]) {
  const auto read = [&](auto bytes_) {
    constexpr int kBytes = decltype(bytes_)::value;
#pragma unroll
    for (int u = 0; u < loads; ++u) read_bytes<kBytes>(address(u), raw[u].words);
  };
  const auto read_items = [&](auto bytes_) {
    if constexpr (count == 1) {
      read(bytes_);
    } else {
      if (repeats) {
        read(bytes_);
      } else {
        read(std::integral_constant<int, decltype(bytes_)::value * count>());
      }
    }
  };
  if constexpr (item != 0) return read_items(std::integral_constant<int, item>());
  const int bytes = item_bytes(dtype);
  if (bytes == 4) return read_items(std::integral_constant<int, 4>());
  if (bytes == 2) return read_items(std::integral_constant<int, 2>());
  if (bytes == 1) return read_items(std::integral_constant<int, 1>());
  if constexpr (sizeof(Real) == 8) {
    read_items(std::integral_constant<int, 8>());
  } else {  // one element, and in packs one that stands for all: see takes_packs()
    const bool floating = dtype == DType::float64;
    uint64_t wide[loads];
#pragma unroll
    for (int u = 0; u < loads; ++u) read_bytes<8>(address(u), wide + u);
#pragma unroll
    for (int u = 0; u < loads; ++u)
      raw[u].words[0] = bits_of(floating ? static_cast<float>(__longlong_as_double(wide[u]))
                                         : static_cast<float>(static_cast<int64_t>(wide[u])));
  }
}

// Converts what read_elements() read.
template <int item = 0, int loads, int count, typename Real>
__device__ __forceinline__ void convert_elements(DType dtype, bool repeats,
                                                 const Raw<Real, count> (&raw)[loads],
                                                 Real (&out)[loads][count]) {
  const auto as = [&](auto type) {
    using Stored = decltype(type);
#pragma unroll
    for (int u = 0; u < loads; ++u)
#pragma unroll
      for (int k = 0; k < count; ++k) out[u][k] = converted_element<Real, Stored>(raw[u].words, k);
  };
  if constexpr (item == 2) {
    if (dtype == DType::bfloat16) {
      as(__nv_bfloat16());
    } else if (dtype == DType::float16) {
      as(__half());
    } else {
      as(int16_t());
    }
  } else if constexpr (item == 4) {
    if (dtype == DType::float32) {
      as(float());
    } else {
      as(int32_t());
    }
  } else if (sizeof(Real) == 4 && dtype == DType::float32) {  // the most frequent, first
    as(float());
  } else {
    switch (dtype) {
      case DType::float16:
        as(__half());
        break;
      case DType::bfloat16:
        as(__nv_bfloat16());
        break;
      case DType::int32:
        as(int32_t());
        break;
      case DType::int16:
        as(int16_t());
        break;
      case DType::int8:
        as(int8_t());
        break;
      case DType::uint8:
      case DType::boolean:
        as(uint8_t());
        break;
      case DType::float32:
        as(float());
        break;
      default:
        if constexpr (sizeof(Real) == 8) {
          if (dtype == DType::float64) {
            as(double());
          } else {
            as(int64_t());
          }
        } else {
          as(float());
        }
    }
  }
  if constexpr (count > 1) {
    if (repeats) {
#pragma unroll
      for (int u = 0; u < loads; ++u)
#pragma unroll
        for (int k = 1; k < count; ++k) out[u][k] = out[u][0];
    }
  }
}

// Writes `loads` times `count` neighbouring elements in a floating dtype, the u-th from element
// index(u) on, where is_there(u).
template <int loads, int count, typename Real, typename Index, typename IsThere>
__device__ __forceinline__ void write_elements(void* data, DType dtype, Index index,
                                               IsThere is_there,
                                               const Real (&values)[loads][count]) {
  const auto as = [&](auto type) {
    using Stored = decltype(type);
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      Stored* const to = static_cast<Stored*>(data) + index(u);
      if (!is_there(u)) continue;
      if constexpr (sizeof(Stored) * count <= kPackBytes) {
        Pack<Stored, count> pack;
#pragma unroll
        for (int k = 0; k < count; ++k) narrow(values[u][k], pack.values[k]);
        *reinterpret_cast<Pack<Stored, count>*>(to) = pack;
      } else {
#pragma unroll
        for (int k = 0; k < count; ++k) narrow(values[u][k], to[k]);
      }
    }
  };
  with_floating_type_of<__half, __nv_bfloat16>(dtype, as);
}

// One number, not converted yet: see Incoming.
__device__ __forceinline__ uint64_t read_number(const void* from, DType dtype) {
  switch (item_bytes(dtype)) {
    case 8:
      return __ldg(static_cast<const unsigned long long*>(from));
    case 4:
      return __ldg(static_cast<const unsigned*>(from));
    default:
      return __ldg(static_cast<const unsigned short*>(from));
  }
}

// A floating number as read_number() has read it.
__device__ __forceinline__ double number_of(uint64_t bits, DType dtype) {
  return with_floating_type_of<__half, __nv_bfloat16>(
      dtype, [&](auto type) -> double { return widen(element_of<decltype(type)>(&bits, 0)); });
}

// Writes one number in a floating dtype.
template <typename Real>
__device__ __forceinline__ void write_number(void* to, DType dtype, Real value) {
  const Real values[1][1] = {{value}};
  write_elements<1, 1>(to, dtype, [](int) { return 0; }, [](int) { return true; }, values);
}

}  // namespace losscli::cuda
