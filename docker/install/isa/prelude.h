/* vendors' compilers make one memory instruction of a vload; Mesa's splits it by component: read through pointers that are aligned to an element instead */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define CODL_V(type, n, space) \
  typedef type##n codl_u##space##type##n __attribute__((aligned(sizeof(type)))); \
  static inline __attribute__((overloadable, always_inline)) type##n codl_ld##n(size_t o, const space type *p) { return *(const space codl_u##space##type##n *)(p + n * o); } 
#define CODL_S(type, n, space) \
  static inline __attribute__((overloadable, always_inline)) void codl_st##n(type##n v, size_t o, space type *p) { *(space codl_u##space##type##n *)(p + n * o) = v; }
#define CODL_ALL(type, n) CODL_V(type, n, __global) CODL_S(type, n, __global) CODL_V(type, n, __local) CODL_S(type, n, __local) CODL_V(type, n, __private) CODL_S(type, n, __private) CODL_V(type, n, __constant)
#define CODL_TYPE(type) CODL_ALL(type, 2) CODL_ALL(type, 4) CODL_ALL(type, 8) CODL_ALL(type, 16)
CODL_TYPE(float) CODL_TYPE(half) CODL_TYPE(char) CODL_TYPE(uchar)
#define vload2 codl_ld2
#define vload4 codl_ld4
#define vload8 codl_ld8
#define vload16 codl_ld16
#define vstore2 codl_st2
#define vstore4 codl_st4
#define vstore8 codl_st8
#define vstore16 codl_st16
