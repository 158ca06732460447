# The process-wide choices that every family reads at each call.
cdef int isa() noexcept nogil
cdef int threads(int requested) noexcept nogil
