// What host and device compilers call the same thing.
#pragma once

#ifdef __CUDACC__
#define LOSSCLI_HOST_DEVICE __host__ __device__ __forceinline__
#define LOSSCLI_LAMBDA
#else
#define LOSSCLI_HOST_DEVICE inline __attribute__((always_inline))
// Between a lambda's parameters and its body: GCC leaves large ones as calls, over which it
// vectorises no loop.
#define LOSSCLI_LAMBDA __attribute__((always_inline))
#endif

#define LOSSCLI_EXPORT extern "C" __attribute__((visibility("default")))

// Before a function for both that calls what it is given, which may be for one of them alone.
#ifdef __CUDACC__
#define LOSSCLI_ANY_BODY _Pragma("nv_exec_check_disable")
#else
#define LOSSCLI_ANY_BODY
#endif
