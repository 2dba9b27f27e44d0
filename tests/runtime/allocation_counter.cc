// Counts what libtvm_codl allocates while counting is on.  Preloaded, so that its operator new stands before
// libstdc++'s; an allocation is ours if the code that asked for it lies in our library.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {
std::atomic<bool> counting{false};
std::atomic<long> ours{0};

void* Allocate(std::size_t size, void* caller) {
  if (counting.load(std::memory_order_relaxed)) {
    Dl_info info;
    if (dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "libtvm_codl") != nullptr) ++ours;
  }
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

extern "C" void count_allocations(int on) {
  if (on != 0) ours = 0;
  counting = on != 0;
}
extern "C" long counted_allocations() { return ours; }

void* operator new(std::size_t size) { return Allocate(size, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return Allocate(size, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
