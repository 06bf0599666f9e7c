/* memory.h: three types of Gloo's that its installed headers name, but whose own header Debian's package
 * leaves out. Found only where the system has none (-idirafter). Each is one of the standard library's
 * pointers; their sizes are part of the connections that gloo.cc makes. */
#pragma once

#include <memory>

namespace gloo
{

template <typename T> class NonOwningPtr final
{
    std::shared_ptr<T> pointer_;
};

template <typename T> class WeakNonOwningPtr;

template <typename T> class ShareableNonOwningPtr final
{
    friend class WeakNonOwningPtr<T>;
    std::shared_ptr<T> pointer_;
};

template <typename T> class WeakNonOwningPtr final
{
  public:
    WeakNonOwningPtr() = default;
    explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T> &owner) : pointer_(owner.pointer_) {}

  private:
    std::weak_ptr<T> pointer_;
};

} // namespace gloo
