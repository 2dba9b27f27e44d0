// TVM's packaged headers include this file, and the package lacks it.  This is as much of it as tvm/runtime/metadata.h
// uses: a range of `W` that reads as `Element`.
#ifndef TVM_SUPPORT_SPAN_H_
#define TVM_SUPPORT_SPAN_H_

namespace tvm {
namespace support {

template <typename W, typename Element = W>
struct Span {
  Span(W* first, W* last) : first(first), last(last) {}
  W* first;
  W* last;
};

}  // namespace support
}  // namespace tvm

#endif  // TVM_SUPPORT_SPAN_H_
