// TVM's packaged headers include this file and the package leaves it out.  This stands in for it: a view of a
// contiguous range whose element type may differ from the iterated one, as tvm/runtime/metadata.h uses it.
#ifndef TVM_SUPPORT_SPAN_H_
#define TVM_SUPPORT_SPAN_H_

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <vector>

namespace tvm {
namespace support {

// W: the element as stored; Element: what an iteration yields, made from a pointer to it or from a copy.
template <typename W, typename Element = W>
class Span {
 public:
  using value_type = Element;
  using const_W = typename std::add_const<W>::type;

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Element;
    using difference_type = std::ptrdiff_t;
    using pointer = const_W*;
    using reference = Element;

    explicit iterator(const_W* at) : at_(at) {}
    Element operator*() const { return Element(*at_); }
    iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const iterator& other) const { return at_ == other.at_; }
    bool operator!=(const iterator& other) const { return at_ != other.at_; }

   private:
    const_W* at_;
  };

  Span(W* begin, std::size_t size) : begin_(begin), end_(begin + size) {}
  Span(W* begin, W* end) : begin_(begin), end_(end) {}

  iterator begin() const { return iterator(begin_); }
  iterator end() const { return iterator(end_); }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  Element operator[](std::size_t i) const { return Element(begin_[i]); }

 private:
  W* begin_;
  W* end_;
};

}  // namespace support
}  // namespace tvm

#endif  // TVM_SUPPORT_SPAN_H_
