/* vendors' compilers make one memory instruction of a vload; Mesa's splits it by component: read through pointers of 4-byte alignment instead */
#define CODL_V(n, space) \
  typedef float##n codl_u##space##n __attribute__((aligned(4))); \
  static inline __attribute__((overloadable, always_inline)) float##n codl_ld##n(size_t o, const space float *p) { return *(const space codl_u##space##n *)(p + n * o); } 
#define CODL_S(n, space) \
  static inline __attribute__((overloadable, always_inline)) void codl_st##n(float##n v, size_t o, space float *p) { *(space codl_u##space##n *)(p + n * o) = v; }
#define CODL_ALL(n) CODL_V(n, __global) CODL_S(n, __global) CODL_V(n, __local) CODL_S(n, __local) CODL_V(n, __private) CODL_S(n, __private) CODL_V(n, __constant)
CODL_ALL(2) CODL_ALL(4) CODL_ALL(8) CODL_ALL(16)
#define vload2 codl_ld2
#define vload4 codl_ld4
#define vload8 codl_ld8
#define vload16 codl_ld16
#define vstore2 codl_st2
#define vstore4 codl_st4
#define vstore8 codl_st8
#define vstore16 codl_st16
