# The cache's memory, for the kernels that read and fill it.
from libc.stdint cimport int64_t

cdef class KVCache:
    cdef readonly int layers, kv_heads, head_size, batch
    cdef readonly int64_t length, capacity
    cdef readonly object max_length, dtype
    cdef int code                # qk_dtype of keys and values
    cdef list buffers            # of each layer (keys, values): arrays (batch, kv_heads, capacity, head_size), aligned to 64 bytes
    cdef list scales             # of each layer (of keys, of values): float32 arrays (batch, kv_heads, capacity) where the dtype is int8, else None
    cdef float **key_scales      # (layers)
    cdef float **value_scales    # (layers)
    cdef char **keys_data        # (layers)
    cdef char **values_data      # (layers)
    cdef int64_t *room           # (layers): tokens that the layer's buffers hold; all the same but while growing
    cdef int64_t *pending        # (layers): tokens written beyond length and not yet committed
    cdef float *scratch          # working memory of attention, aligned to 64 bytes
    cdef int64_t scratch_size
    cdef void *busy              # a lock that one call holds

    cdef int enter(self, str func) except -1
    cdef int leave(self) except -1
    cdef int check_layer(self, object layer, str func) except -1
    cdef int reserve(self, int64_t needed, str func) except -1
    cdef float *working_memory(self, int64_t floats) except NULL
