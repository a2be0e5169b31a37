// What host and device compilers call the same thing.
#pragma once

#ifdef __CUDACC__
#define LOSSCLI_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOSSCLI_HOST_DEVICE inline __attribute__((always_inline))
#endif

#define LOSSCLI_EXPORT extern "C" __attribute__((visibility("default")))
